// SPDX-License-Identifier: Apache-2.0

package watchstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/internal/watchstore"
)

// What an API server cannot answer is asked again within seconds; what it refuses costs less and
// less, down to twice a minute, and is asked at once when a pause is ended. Either is found out
// within a minute of its end.
func TestRetryGoesByTheTable(t *testing.T) {
	for _, answer := range fakecluster.Answers() {
		err := answer.Err(fakecluster.Request{Verb: "list"})
		most := 150
		switch answer.Kind { //nolint:exhaustive // all others are refused
		case fates.Unreachable, fates.Failing:
			most = 2_000
		case fates.Expired, fates.Ahead, fates.Invalid, fates.Replaced, fates.Malformed, fates.NotAllowed, fates.NotAcceptable:
			continue // a reflector has to see these
		}
		t.Run(fmt.Sprint(err), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playRetry(t, err, most) })
		})
	}
}

func playRetry(t *testing.T, err error, most int) {
	t.Helper()
	const outage = 3*time.Hour + time.Second
	var p watchstore.Pauses
	asked, began, woken := 0, time.Now(), make(chan struct{}, 1)
	answered := make(chan time.Duration)
	go func() {
		_, _ = watchstore.Retry(t.Context(), &p, func(error) {}, func() (int, error) {
			asked++
			select {
			case woken <- struct{}{}:
			default:
			}
			if time.Since(began) >= outage {
				return 0, nil
			}
			return 0, err
		})
		answered <- time.Since(began)
	}()
	time.Sleep(time.Minute)
	early := asked
	time.Sleep(2*time.Hour - time.Minute)
	before := asked
	time.Sleep(time.Hour - time.Minute)
	if n := asked - before; n > most || early < 5 {
		t.Errorf("asked %d times in the first minute, and %d times in an hour later", early, n)
	}
	synctest.Wait()
	<-woken
	p.Wake()
	synctest.Wait()
	select {
	case <-woken:
	default:
		t.Error("not asked when it is woken")
	}
	if took := <-answered; took > outage+time.Minute {
		t.Errorf("answered %v after the end", took-outage)
	}
}

// A retry ends with its context.
func TestRetryEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := watchstore.Retry(ctx, &watchstore.Pauses{}, func(error) {}, func() (int, error) { return 0, errors.New("no answer") })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ended with %v", err)
		}
	})
}
