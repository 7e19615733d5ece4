// SPDX-License-Identifier: Apache-2.0

package loss

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A konnector that reads the end of a pause in a message, as another one or a restart does, does not end it early.
func TestMessageEndsWithThePause(t *testing.T) {
	for _, after := range []time.Duration{0, 1, 999_999_999, time.Second} {
		at := time.Date(2026, 11, 28, 0, 0, 59, 0, time.UTC).Add(after)
		losses, next := read(Returns + (&History{count: 3, next: at}).Until())
		if losses != 3 || next.Before(at) || next.Sub(at) >= time.Second {
			t.Errorf("loss %d, until %v, and not %v", losses, next, at)
		}
	}
}

// Each loss in a row has twice the pause, up to an hour, over starts too; two hours without one end the row.
func TestPausesInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		created := &metav1.ObjectMeta{CreationTimestamp: metav1.Now()}
		var h History
		for i := range 20 {
			h.Begin(created, "", i)
			if want := min(time.Second<<i, Longest); h.Wait(i) != want || h.Due(i) {
				t.Errorf("loss %d: %v left, not %v; due %t", i+1, h.Wait(i), want, h.Due(i))
			}
			var started History
			started.Begin(created, Returns+h.Until(), i)
			if left := started.Wait(i) - h.Wait(i); left < 0 || left >= time.Second {
				t.Errorf("after a start %v is left, not %v", started.Wait(i), h.Wait(i))
			}
			time.Sleep(h.Wait(i))
			if !h.Due(i) {
				t.Errorf("loss %d: not due after its pause", i+1)
			}
			h.End()
		}
		time.Sleep(2*Longest + 1)
		if h.Begin(created, "", 0); h.Wait(0) != time.Second {
			t.Errorf("%v in a new row", h.Wait(0))
		}
	})
}

// A return that was refused is asked for again at once by a start, once, and one that is not on offer after a list.
func TestRefusedReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h History
		const message = Refused + "the target cluster refuses it"
		h.Begin(&metav1.ObjectMeta{}, message, 1)
		if !h.Lost() || !h.Due(1) || !h.Counted() || h.Why() != Refused+"the target cluster refuses it" {
			t.Errorf("due %t, counted %t, since %q", h.Due(1), h.Counted(), h.Why())
		}
		h.End()
		h.Begin(&metav1.ObjectMeta{}, message, 1) // which was not taken off
		if h.Due(1) || h.Counted() || h.Wait(1) != 2*time.Second {
			t.Errorf("the next loss: due %t, counted %t, %v", h.Due(1), h.Counted(), h.Wait(1))
		}
		if h.Withhold("it is not on offer", 1); h.Due(1) || h.Due(2) || h.Wait(2) != 2*time.Second {
			t.Errorf("not on offer, within the pause: due %t before and %t after a list", h.Due(1), h.Due(2))
		}
		time.Sleep(2 * time.Second)
		h.Begin(&metav1.ObjectMeta{}, "", 1) // as it is looked at, and still not on offer
		if h.Withhold("it is not on offer", 1); h.Due(1) || !h.Due(2) {
			t.Errorf("not on offer, after the pause: due %t before and %t after a list", h.Due(1), h.Due(2))
		}
	})
}
