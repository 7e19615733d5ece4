// SPDX-License-Identifier: Apache-2.0

// Package handshake serves the HTTP requests of those who bind: a person's login at an
// issuer, the page on which the person chooses services, the redemption of the one-time
// code, device authorizations, logins of machines, and the legacy CLI. [New] returns the
// handler of all of it.
//
// The files are in the order of one request. server.go takes it in: visitor.go identifies
// the sender and leaves audit records, limit.go counts it, cookies.go and sessions.go open
// what the browser brings. Then one of login.go, page.go, redeem.go, device.go, machine.go
// or legacy.go answers it; offering.go computes what the person may bind and makes the
// tenant; ending.go ends the login, with an answer for the program that waits
// (terminal.go, if that is on another machine); render.go writes the page or the JSON.
//
// # Why nothing is stored
//
// Any replica must be able to take any step of a login, and strangers begin as many logins
// as they like. So a login in flight, a session and a one-time code are sealed into the
// cookie or the code itself. Only what has to be known everywhere is stored: which codes
// were redeemed (in the record of the tenant), and in the DeviceStore which sessions have
// ended, which codes told the offer, what terminals wait for, and groups that do not
// fit a cookie. A store of all sessions would be simpler, but a flood of logins would fill
// it.
//
// What a person may bind is computed for the page. Before the page only what the link asks
// for by name is checked, to refuse at once what cannot be had; at the bind only what was
// chosen is checked again, since rights may have changed.
package handshake
