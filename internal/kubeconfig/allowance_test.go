// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"testing"
	"testing/synctest"
	"time"
)

// P8: all answers that have not ended hold a bounded amount, and each of them comes to its end.
func TestP8AnswersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const answers, part = 16, 1 << 20
		a, most, ended := &allowance{left: maxAtOnce}, 0, 0
		for range answers {
			go func() {
				b := &holding{}
				for b.weight < maxAnswer {
					b.weight += part
					if !a.hold(b, nil) {
						t.Error("an answer does not come to its end")
					}
					a.mu.Lock()
					most = max(most, a.held)
					a.mu.Unlock()
					time.Sleep(time.Millisecond)
				}
				a.end(b)
				a.mu.Lock()
				ended++
				a.mu.Unlock()
			}()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		a.mu.Lock()
		defer a.mu.Unlock()
		if ended != answers || a.held != 0 || len(a.holders) > 0 {
			t.Errorf("%d of %d answers have ended, %d bytes are held by %d", ended, answers, a.held, len(a.holders))
		}
		if most > maxAtOnce || most < maxAtOnce-maxAnswer {
			t.Errorf("%d MB were held at once, want %d to %d", most>>20, (maxAtOnce-maxAnswer)>>20, maxAtOnce>>20)
		}
	})
}

// An answer that does not end keeps others waiting no longer than their time, and one that was
// closed holds nothing, whatever is read of it still.
func TestP8AnswerWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &allowance{}
		atRest := &holding{weight: small} // a watch
		if !a.hold(atRest, nil) {
			t.Error("a watch at rest waits")
		}
		oldest, next := &holding{weight: maxAnswer / 2}, &holding{weight: maxAtOnce - maxAnswer - maxAnswer/2 - small}
		if !a.hold(oldest, nil) || !a.hold(next, nil) {
			t.Fatal("what is let in at once is not")
		}
		tiny := &holding{weight: small}
		if !a.hold(tiny, nil) {
			t.Error("a small answer waits for large ones")
		}
		a.end(tiny)
		done, late := make(chan struct{}), &holding{weight: small + 1}
		time.AfterFunc(time.Second, func() { close(done) })
		if a.hold(late, done) {
			t.Error("more is held than is let in")
		}
		time.AfterFunc(time.Second, func() { a.end(oldest) })
		if began := time.Now(); !a.hold(late, nil) || time.Since(began) != time.Second {
			t.Errorf("what waits was let in after %v", time.Since(began))
		}
		oldest.weight++
		if !a.hold(oldest, nil) || a.held != next.weight+late.weight+small {
			t.Errorf("%d bytes are held by %d answers", a.held, len(a.holders))
		}
	})
}
