// SPDX-License-Identifier: Apache-2.0

package auth_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/klutch-go/sdk/auth"
)

func ExampleNew() {
	_, err := auth.New(auth.Config{
		Issuer:      "http://issuer.example.com",
		ClientID:    "klutch",
		RedirectURL: "https://klutch.example.com/callback",
	})
	fmt.Println(err)
	// Output: issuer URL: must be https, or http to a loopback address
}

func ExampleNewSealer() {
	old, young := bytes.Repeat([]byte("o"), 32), bytes.Repeat([]byte("y"), 32)
	before, err := auth.NewSealer(old)
	if err != nil {
		fmt.Println(err)
		return
	}
	attempt, err := json.Marshal(auth.Attempt{State: "s"})
	if err != nil {
		fmt.Println(err)
		return
	}
	cookie, err := before.SealUntil("transaction", attempt, time.Now().Add(10*time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}

	during, err := auth.NewSealer(young, old) // the rotation
	if err != nil {
		fmt.Println(err)
		return
	}
	opened, err := during.Open("transaction", cookie)
	fmt.Println(string(opened), err)
	_, err = during.Open("session", cookie)
	fmt.Println(errors.Is(err, auth.ErrSealed))
	// Output:
	// {"state":"s","nonce":"","verifier":""} <nil>
	// true
}

func ExampleLogin() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	grant, err := auth.Login(ctx, auth.LoginOptions{
		AuthorizeURL: "https://klutch.example.com/authorize",
		Issuer:       "https://klutch.example.com",
		ClientID:     "kubectl-bind",
		Prompt:       func(target, _ string) { fmt.Println("Visit", target[:36]) },
		Open:         sayYes,
	})
	fmt.Println(grant.Code, err)
	// Output:
	// Visit https://klutch.example.com/authorize
	// one-time <nil>
}

// sayYes stands in for a browser, a backend and a person who agrees.
func sayYes(target string) error {
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	answer := url.Values{"code": {"one-time"}, "state": {u.Query().Get("state")}, "iss": {"https://klutch.example.com"}}
	resp, err := http.Get(u.Query().Get("redirect_uri") + "?" + answer.Encode())
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func ExampleListen() {
	loopback, err := auth.Listen(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer loopback.Close()
	fmt.Println(strings.HasPrefix(loopback.RedirectURL(), "http://127.0.0.1:"))
	// Output: true
}

func ExampleBounded() {
	client := auth.Bounded(&http.Client{Timeout: time.Minute})
	resp, err := client.Get("http://klutch.example.com/export")
	if err == nil {
		_ = resp.Body.Close()
	}
	fmt.Println(err)
	// Output: Get "http://klutch.example.com/export": must be https, or http to a loopback address
}

func ExampleDisplayCode() {
	fmt.Println(auth.DisplayCode("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"))
	// Output: FPFF-JMPB
}
