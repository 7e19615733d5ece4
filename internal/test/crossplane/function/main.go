// SPDX-License-Identifier: Apache-2.0

// Function is a composition function for tests. It understands as much of the input of
// function-patch-and-transform as the compositions of examples/crossplane use, and refuses
// the rest.
//
//	function -listen 127.0.0.1:9443 -certificates DIR
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	fnv1 "github.com/crossplane/crossplane/v2/proto/fn/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

func main() {
	listen := flag.String("listen", "", "address")
	certificates := flag.String("certificates", "", "folder with tls.crt, tls.key and ca.crt")
	flag.Parse()
	if err := serve(*listen, *certificates); err != nil {
		log.Fatal(err)
	}
}

func serve(address, certificates string) error {
	own, err := tls.LoadX509KeyPair(filepath.Join(certificates, "tls.crt"), filepath.Join(certificates, "tls.key"))
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(filepath.Join(certificates, "ca.crt"))
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{own}, ClientCAs: pool, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12,
	})))
	fnv1.RegisterFunctionRunnerServiceServer(server, function{})
	return server.Serve(listener)
}

type function struct {
	fnv1.UnimplementedFunctionRunnerServiceServer
}

type object = map[string]any

// RunFunction composes what the input lists.
func (function) RunFunction(_ context.Context, r *fnv1.RunFunctionRequest) (*fnv1.RunFunctionResponse, error) {
	out := &fnv1.RunFunctionResponse{
		Meta:    &fnv1.ResponseMeta{Tag: r.GetMeta().GetTag(), Ttl: durationpb.New(time.Minute)},
		Desired: &fnv1.State{Composite: &fnv1.Resource{}, Resources: map[string]*fnv1.Resource{}},
	}
	composite, desired := r.GetObserved().GetComposite().GetResource().AsMap(), object{}
	resources, _ := r.GetInput().AsMap()["resources"].([]any)
	for _, one := range resources {
		template, _ := one.(object)
		name, _ := template["name"].(string)
		observed := r.GetObserved().GetResources()[name].GetResource().AsMap()
		base, _ := template["base"].(object)
		patches, _ := template["patches"].([]any)
		for _, one := range patches {
			p, _ := one.(object)
			if err := patch(p, composite, desired, base, observed); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		content, err := structpb.NewStruct(base)
		if err != nil {
			return nil, err
		}
		out.Desired.Resources[name] = &fnv1.Resource{Resource: content, Ready: ready(template, observed)}
	}
	content, err := structpb.NewStruct(desired)
	out.Desired.Composite.Resource = content
	return out, err
}

// patch carries a field from the composite resource to a composed one, or back. One that is
// not there is left for a later run.
func patch(p, composite, desired, base, observed object) error {
	from, to := composite, base
	switch p["type"] {
	case "FromCompositeFieldPath":
	case "ToCompositeFieldPath":
		from, to = observed, desired
	default:
		return fmt.Errorf("patches of type %v are not known here", p["type"])
	}
	value, there := get(from, p["fromFieldPath"])
	if !there {
		return nil
	}
	transforms, _ := p["transforms"].([]any)
	for _, one := range transforms {
		t, _ := one.(object)
		table, _ := t["map"].(object)
		if t["type"] != "map" {
			return fmt.Errorf("transforms like %v are not known here", t)
		}
		value, there = table[fmt.Sprint(value)]
	}
	if there {
		set(to, p["toFieldPath"], value)
	}
	return nil
}

// ready is what the readiness checks say of a composed resource.
func ready(template, observed object) fnv1.Ready {
	checks, _ := template["readinessChecks"].([]any)
	for _, one := range checks {
		c, _ := one.(object)
		value, _ := get(observed, c["fieldPath"])
		if len(observed) == 0 || c["type"] != "None" && value != c["matchString"] {
			return fnv1.Ready_READY_FALSE
		}
	}
	return fnv1.Ready_READY_TRUE
}

func get(in object, path any) (any, bool) {
	var value any = in
	for name := range strings.SplitSeq(fmt.Sprint(path), ".") {
		fields, _ := value.(object)
		next, there := fields[name]
		if !there {
			return nil, false
		}
		value = next
	}
	return value, true
}

func set(in object, path, value any) {
	names := strings.Split(fmt.Sprint(path), ".")
	for _, name := range names[:len(names)-1] {
		next, _ := in[name].(object)
		if next == nil {
			next = object{}
			in[name] = next
		}
		in = next
	}
	in[names[len(names)-1]] = value
}
