// SPDX-License-Identifier: Apache-2.0

// Kube is a Kubernetes control plane in one program: its first argument says whether it is etcd, kube-apiserver or
// kube-controller-manager, and the rest are the flags of that program.
//
//	kube etcd --data-dir …
//	kube kube-apiserver --etcd-servers …
//	kube kube-controller-manager --kubeconfig …
//
// It lives in a module of its own, so that nobody who uses the SDK finds Kubernetes itself in their module graph.
// Package cluster builds and runs it.
//
// A process ends when its standard input does. Whoever starts it holds the other end of a pipe, which the kernel closes however
// that process ends, so that no server outlives the test that started it.
package main

import (
	"fmt"
	"io"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	go exitAtEOF(os.Stdin)
	if len(os.Args) < 2 {
		usage()
	}
	args := os.Args[1:]
	os.Args = args
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
	fmt.Fprintln(os.Stderr, "usage: kube etcd|kube-apiserver|kube-controller-manager [flags]")
	os.Exit(2)
}
