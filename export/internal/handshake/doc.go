// SPDX-License-Identifier: Apache-2.0

// Package handshake is what a browser and a terminal meet: the login of a person with an
// issuer, the page on which services are chosen, the one-time code and its redemption,
// the login of a program on another machine (RFC 8628), machines, and the old CLI.
// [New] returns the handler of all of it.
//
// The way of one request is the order of the files. server.go takes it in: visitor.go
// says who sends it and leaves the records, limit.go counts it, cookies.go and sessions.go
// open what the browser brings. Then one of login.go, page.go, redeem.go, device.go,
// machine.go or legacy.go answers it; offering.go says what the person may bind and has
// the tenant made; ending.go ends the login, with an answer for the program that waits
// (terminal.go, if that is on another machine); render.go writes the page or the JSON.
//
// # Why nothing is stored
//
// Any replica must be able to take any step of a login, and strangers begin as many logins
// as they like. So a login in flight, a session and a one-time code are sealed into the
// cookie or the code itself. Only what has to be known everywhere is stored: which codes
// were redeemed (in the record of the tenant), and in the DeviceStore which sessions have
// ended, which codes told the offer, what terminals wait for, and groups that do not
// fit a cookie. A store of sessions would be simpler to reason about, and would be the first
// thing that a flood fills.
//
// What a person may bind is computed for the page. Before the page only what the link asks
// for by name is checked, to refuse at once what cannot be had; at the bind only what was
// chosen is checked again, since rights may have changed.
package handshake
