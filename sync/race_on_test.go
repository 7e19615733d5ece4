// SPDX-License-Identifier: Apache-2.0

//go:build race

package sync_test

const raceDetector = true
