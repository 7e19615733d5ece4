// SPDX-License-Identifier: Apache-2.0

// Package auth is both ends of a login: a server that lets people and machines in
// with the tokens of an OpenID Connect issuer (Dex, Keycloak, any other), and a
// command line program that logs in to such a server through a browser.
//
// # The server
//
// A [Provider] is one trusted issuer. A login is two calls with an [Attempt] in
// between, which travels in a cookie that a [Sealer] made opaque:
//
//	provider, err := auth.New(auth.Config{
//		Issuer:       "https://issuer.example.com",
//		ClientID:     "klutch",
//		ClientSecret: secret,
//		RedirectURL:  "https://klutch.example.com/callback",
//	})
//
//	attempt, url, err := provider.Begin(ctx)     // seal attempt, send the browser to url
//	id, err := provider.Finish(ctx, attempt, r.URL.Query()) // on /callback, once
//
// The [Identity] has passed the one verifier of this module: go-oidc checks
// signature, issuer and times; audience, authorized party, nonce (in constant
// time), access token hash and clock skew are checked here. Only asymmetric
// signatures count.
//
// A machine brings an access token that it got by client credentials:
//
//	id, err := auth.Providers{provider}.VerifyMachine(ctx, auth.BearerToken(r), "klutch/bind")
//	status, authenticate := auth.BearerChallenge(err) // if err is not nil
//
// A program on a machine without a browser logs in with a code that a person types
// on any other device. [Devices] is the server's end of that, for any number of
// replicas.
//
// Nothing is asked of the issuer before first use, and a failed first use is
// tried again by the next. The issuer's endpoints are cached, and each login that
// begins renews them after ten seconds; its keys are, too, and an unknown key is looked up
// at once, though at most three times in thirty seconds for clients that bring tokens. Every exchange is [Bounded].
//
// # The command line
//
// [Login] sends a browser to the server and returns a [Grant]. The browser brings
// back only a one-time code, which is of no use without the verifier that never
// left the program:
//
//	grant, err := auth.Login(ctx, auth.LoginOptions{
//		AuthorizeURL: "https://klutch.example.com/authorize",
//		Issuer:       "https://klutch.example.com",
//		ClientID:     "kubectl-bind",
//		Prompt:       func(url, code string) { fmt.Fprintln(os.Stderr, "Visit", url, "and compare", code) },
//		Open:         openBrowser,
//	})
//
// It blocks until the answer arrives or ctx ends; a program that should not wait
// for ever gives ctx a deadline. [LoginDevice] does it without a browser on this
// machine. Either grant is redeemed alike, and then is what the server hands out:
//
//	response, err := grant.Redeem(ctx, auth.TokenEndpoint("https://klutch.example.com/token", nil))
//
// A program that runs by itself brings the tokens of [MachineTokens] instead.
//
// # Errors
//
// An OAuth server that says no is an [*Error]; everything else is one of
// [ErrState], [ErrIssuer], [ErrToken], [ErrScope], [ErrUnavailable], [ErrSealed],
// [ErrExpired], [ErrUserCode], [ErrDevicePending] and [ErrDeviceTaken]. No error
// holds a token, a code or a secret.
package auth
