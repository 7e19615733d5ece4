// SPDX-License-Identifier: Apache-2.0

package inflight

import (
	"context"
	"slices"
)

type userKey struct{}

// By says whose the requests of a context are; users are compared by ==.
func By(ctx context.Context, user any) context.Context {
	return context.WithValue(ctx, userKey{}, user)
}

// A queue is the places that are waited for, by user. The users take turns.
type queue []waiter

// A waiter is a user who waits.
type waiter struct {
	user   any
	places []chan struct{} // in order; never empty
}

func (q *queue) add(user any, place chan struct{}) {
	for i, w := range *q {
		if w.user == user {
			w.places = append(w.places, place)
			(*q)[i] = w
			return
		}
	}
	*q = append(*q, waiter{user, []chan struct{}{place}})
}

// next takes the first place of the user whose turn it is.
func (q *queue) next() chan struct{} {
	w := (*q)[0]
	*q = (*q)[1:]
	if len(w.places) > 1 {
		*q = append(*q, waiter{w.user, w.places[1:]})
	}
	return w.places[0]
}

// remove reports whether place was still waited for.
func (q *queue) remove(place chan struct{}) bool {
	for i, w := range *q {
		if at := slices.Index(w.places, place); at >= 0 {
			if (*q)[i].places = slices.Delete(w.places, at, at+1); len(w.places) == 1 {
				*q = slices.Delete(*q, i, i+1)
			}
			return true
		}
	}
	return false
}
