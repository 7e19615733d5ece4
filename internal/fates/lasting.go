// SPDX-License-Identifier: Apache-2.0

package fates

import (
	"context"
	"time"
)

// lasting is how long calls fail before people are told of an answer that is no refusal.
const lasting = 10 * time.Second

type sinceKey struct{}

// FailingSince returns a context for a call that repeats what has failed since then. Package queue gives
// its functions such contexts.
func FailingSince(ctx context.Context, since time.Time) context.Context {
	return context.WithValue(ctx, sinceKey{}, since)
}

// longAsked is a pause that an API server asks for and of which people are told before it ends.
const longAsked = time.Minute

// IsTold reports whether people are to be told of err, which a call with ctx has met: of what an
// API server refuses at once, and of what it wants to be asked again in a minute or later; of all else
// once the calls have failed for ten seconds in a row.
func IsTold(ctx context.Context, err error) bool {
	since, repeats := ctx.Value(sinceKey{}).(time.Time)
	return IsRefused(err) || Of(err).Fate() != Done && (Asked(err) >= longAsked || repeats && time.Since(since) >= lasting)
}
