// SPDX-License-Identifier: Apache-2.0

package klutch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/klutch-go/sdk/auth"
)

const (
	issuerPace     = time.Minute      // between two looks at an issuer
	issuerPatience = 10 * time.Second // with an issuer that does not answer
	issuerReminder = time.Hour        // between two lines about one that stays away
)

// issuers looks at the issuers of a backend, so that one that is away is told before a person
// wants to sign in.
type issuers struct {
	all  []*issuer
	seen func(name string, up bool) // may be nil
	now  func() time.Time

	mu sync.Mutex // guards what is known of each issuer
}

// An issuer is one at which a backend looks.
type issuer struct {
	name     string
	provider *auth.Provider
	err      error     // of the last look
	since    time.Time // it has been away
	logged   time.Time
}

// add leaves out an issuer that is there already.
func (i *issuers) add(name string, p *auth.Provider) {
	if !slices.ContainsFunc(i.all, func(one *issuer) bool { return one.provider.Issuer() == p.Issuer() }) {
		i.all = append(i.all, &issuer{name: name, provider: p})
	}
}

// run looks at each issuer once a minute, until ctx is done.
func (i *issuers) run(ctx context.Context) error {
	wait.JitterUntilWithContext(ctx, i.look, issuerPace, 0.1, true)
	return nil
}

// look asks all issuers at once, so that none holds up what is known of another.
func (i *issuers) look(ctx context.Context) {
	var asked sync.WaitGroup
	for _, one := range i.all {
		asked.Go(func() {
			bounded, cancel := context.WithTimeout(ctx, issuerPatience)
			defer cancel()
			if err := one.provider.Probe(bounded); ctx.Err() == nil {
				i.note(logr.FromContextOrDiscard(ctx), one, err)
			}
		})
	}
	asked.Wait()
}

// note logs a change, and reminds of an issuer that stays away.
func (i *issuers) note(log logr.Logger, one *issuer, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	log, now := log.WithValues("issuer", one.name, "url", one.provider.Issuer()), i.now()
	switch {
	case err == nil && one.err != nil:
		log.Info("the issuer answers again", "away", now.Sub(one.since).Round(time.Second).String())
	case err != nil && one.err == nil:
		one.since = now
		fallthrough
	case err != nil && now.Sub(one.logged) >= issuerReminder:
		one.logged = now
		log.Error(err, "the issuer does not answer as it should: no one can sign in there; what is bound goes on", "since", one.since.UTC().Format(time.RFC3339))
	}
	one.err = err
	if i.seen != nil {
		i.seen(one.name, err == nil)
	}
}

// away has a line for each issuer that was not there at the last look.
func (i *issuers) away() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	var lines strings.Builder
	for _, one := range i.all {
		if one.err != nil {
			fmt.Fprintf(&lines, "issuer %s (%s) is away since %s: no one can sign in there\n", one.name, one.provider.Issuer(), one.since.UTC().Format(time.RFC3339))
		}
	}
	return lines.String()
}
