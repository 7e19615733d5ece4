// SPDX-License-Identifier: Apache-2.0

// Package e2e has only tests: everything that the demo shows, and every bad input
// that Klutch promises to bear, on two real control planes with the programs as
// processes of exactly the shipped rights.
//
// The tests share one stack but no names, so they run in any order. Those that take
// a part away bring it back.
package e2e
