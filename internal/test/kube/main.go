// SPDX-License-Identifier: Apache-2.0

// Kube is a Kubernetes control plane in one program: its first argument says whether it is etcd, kube-apiserver or
// kube-controller-manager, and the rest are the flags of that program. It is kubectl too, of the same version.
//
//	kube etcd --data-dir …
//	kube kube-apiserver --etcd-servers …
//	kube kube-controller-manager --kubeconfig …
//	kube kubectl diff …
//
// It lives in a module of its own, so that no user of the SDK finds Kubernetes itself in their module graph.
// Package cluster builds and runs it.
//
// A server ends when its standard input does. The program that starts it holds the other end of a pipe, which the kernel closes however
// that process ends, so that no server outlives the test that started it.
package main

import (
	"fmt"
	"io"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	args := os.Args[1:]
	os.Args = args
	if args[0] == "kubectl" {
		util.CheckErr(cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()))
		return
	}
	go exitAtEOF(os.Stdin)
	switch args[0] {
	case "etcd":
		etcdmain.Main(args)
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	default:
		usage()
	}
}

func exitAtEOF(r io.Reader) {
	_, _ = io.Copy(io.Discard, r)
	os.Exit(0)
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: kube etcd|kube-apiserver|kube-controller-manager|kubectl [flags]")
	os.Exit(2)
}
