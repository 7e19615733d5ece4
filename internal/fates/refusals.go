// SPDX-License-Identifier: Apache-2.0

package fates

import "fmt"

// Refusals collect the refusals among many requests. The other requests are sent all the same, so that
// one protected object does not stop the work on the rest. The zero value has none.
//
//	var refused fates.Refusals
//	for _, o := range objects {
//		if err := refused.Keep(remove(o)); err != nil {
//			return err // the next request would meet it, too
//		}
//	}
//	return refused.Err()
type Refusals struct {
	first error
	more  int
}

// Keep keeps err if it is about this one request, and returns any other error.
func (r *Refusals) Keep(err error) error {
	switch {
	case err == nil:
	case !ofOne(err):
		return err
	case r.first == nil:
		r.first = err
	default:
		if r.more++; IsRefused(err) && !IsRefused(r.first) { // which people are to be told of
			r.first = err
		}
	}
	return nil
}

// Err is the first of them, with the number of the others; nil if there is none.
func (r *Refusals) Err() error {
	if r.more == 0 {
		return r.first
	}
	return fmt.Errorf("%w (and so it is with %d more)", r.first, r.more)
}
