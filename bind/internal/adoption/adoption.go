// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/bind/internal/permission"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

const (
	mostWaiting  = 1000 // objects that are remembered
	mostAtOnce   = 10   // objects that one look is about
	longestBody  = 256 << 10
	firstPause   = 5 * time.Second
	longestPause = 10 * time.Minute
	// limitPause is between looks at whether there is room again.
	limitPause = 30 * time.Second
)

// Terms are what both sides have agreed to.
type Terms struct {
	Offered bool // by the provider
	Limit   int  // of the App Cluster: the most claims that are adopted objects; 0 is no consent
}

// Offered reports whether a provider has objects adopted. A backend that leaves no hash of its
// claims is Klutch's, which has no word for it: its konnector adopts whatever is there.
func Offered(export *v1alpha1.APIServiceExport) bool {
	_, ours := export.Annotations[v1alpha1.SourceClaimsHashAnnotation]
	return export.Spec.Adoption == v1alpha1.AdoptionOffer || !ours
}

// Agreed reports whether objects are adopted at all.
func (t Terms) Agreed() bool { return t.Offered && t.Limit > 0 }

// Clients read the objects of one API on both sides, and make claims.
type Clients struct {
	Claims  dynamic.NamespaceableResourceInterface
	Counted metadata.Getter
	Objects dynamic.NamespaceableResourceInterface // of the Control Plane Cluster
}

// A Tracker remembers the objects of one binding that its provider made and that are no claims
// yet. Create it with New.
type Tracker struct {
	wake func() // asks for a Look; must not block
	pace flowcontrol.PassiveRateLimiter

	mu      sync.Mutex
	waiting map[cache.ObjectName]*object // by claim
	more    bool                         // than are remembered
}

type object struct {
	target cache.ObjectName
	next   time.Time
	pause  time.Duration
	reason string // why it is no claim; empty if that is not known yet
	why    string
}

// New returns an empty Tracker.
func New(wake func()) *Tracker {
	return &Tracker{wake: wake, pace: flowcontrol.NewTokenBucketPassiveRateLimiter(0.2, 20), waiting: map[cache.ObjectName]*object{}}
}

// Found is the hook Unclaimed of a Sync.
func (t *Tracker) Found(_ context.Context, claim, target cache.ObjectName) {
	t.mu.Lock()
	_, known := t.waiting[claim]
	full := !known && len(t.waiting) >= mostWaiting
	t.more = t.more || full
	if !known && !full {
		t.waiting[claim] = &object{target: target}
	}
	t.mu.Unlock()
	if !known && !full {
		t.wake()
	}
}

// Look makes claims of objects, as terms allow, and returns those.
func (t *Tracker) Look(ctx context.Context, terms Terms, c Clients) (adopted []*unstructured.Unstructured) {
	room := -1 // not known
	for _, claim := range t.due(time.Now()) {
		if t.isPutOff(claim) {
			continue
		}
		made, reason, err := t.adopt(ctx, claim, terms, c, &room)
		if made != nil {
			adopted = append(adopted, made)
		}
		t.settle(claim, reason, err)
	}
	return adopted
}

// due are the objects that it is time to look at.
func (t *Tracker) due(now time.Time) (all []cache.ObjectName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for claim, o := range t.waiting {
		if !now.Before(o.next) {
			all = append(all, claim)
		}
	}
	slices.SortFunc(all, func(a, b cache.ObjectName) int { return t.waiting[a].next.Compare(t.waiting[b].next) })
	return all[:min(len(all), mostAtOnce)]
}

// isPutOff reports whether an object has to wait, since there was no room for another one.
func (t *Tracker) isPutOff(claim cache.ObjectName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Now().Before(t.waiting[claim].next)
}

// settle forgets an object, or notes why it is no claim: of many, each is looked at as rarely as makes one
// request in fates.Share in all. Where there is no room for it, there is none for the others that wait for room.
func (t *Tracker) settle(claim cache.ObjectName, reason string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.waiting[claim]
	if reason == "" {
		delete(t.waiting, claim)
		t.more = t.more && len(t.waiting) > 0
		return
	}
	o.pause = max(min(max(2*o.pause, firstPause), longestPause), time.Duration(len(t.waiting))*fates.Share)
	o.reason, o.next, o.why = reason, time.Now().Add(o.pause), ""
	if reason == v1alpha1.ReasonAdoptionLimit {
		for _, o := range t.waiting {
			if o.reason == reason {
				o.pause, o.next = limitPause, time.Now().Add(limitPause)
			}
		}
	}
	if err != nil {
		o.why = cluster.Explain(err)
	}
}

// adopt makes a claim of an object. An empty reason says that there is nothing left to do.
func (t *Tracker) adopt(ctx context.Context, name cache.ObjectName, terms Terms, c Clients, room *int) (made *unstructured.Unstructured, reason string, err error) {
	t.mu.Lock()
	target, waited := t.waiting[name].target, t.waiting[name].reason == v1alpha1.ReasonAdoptionLimit
	t.mu.Unlock()
	if waited = waited && terms.Agreed(); waited { // what was read once is read again only once there is room
		if reason, err := t.hasRoom(ctx, terms, c, room); reason != "" {
			return nil, reason, err
		}
	}
	live, err := c.Objects.Namespace(target.Namespace).Get(ctx, target.Name, metav1.GetOptions{})
	if fates.Is(err, fates.Absent) {
		return nil, "", nil
	}
	if err != nil {
		return nil, v1alpha1.ReasonAdoptionRefused, err
	}
	claim, ok := klutchsync.NewAdopted(live, name)
	switch {
	case !ok:
		return nil, "", nil
	case !terms.Agreed():
		return nil, v1alpha1.ReasonAdoptionNotAgreed, nil
	}
	if err := check(claim); err != nil {
		return nil, v1alpha1.ReasonAdoptionRefused, err
	}
	if !waited {
		if reason, err := t.hasRoom(ctx, terms, c, room); reason != "" {
			return nil, reason, err
		}
	}
	made, err = c.Claims.Namespace(name.Namespace).Create(ctx, claim, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	switch {
	case fates.Is(err, fates.Exists): // a person was faster, and hears of the conflict from the Sync
		return nil, "", nil
	case err != nil:
		return nil, v1alpha1.ReasonAdoptionRefused, err
	}
	*room--
	return made, "", nil
}

// hasRoom is why there is no room now for another claim; empty if there is some.
func (t *Tracker) hasRoom(ctx context.Context, terms Terms, c Clients, room *int) (reason string, err error) {
	if *room < 0 {
		if *room, err = c.room(ctx, terms.Limit); err != nil {
			return v1alpha1.ReasonAdoptionRefused, err
		}
	}
	if *room == 0 || !t.pace.TryAccept() {
		return v1alpha1.ReasonAdoptionLimit, nil
	}
	return "", nil
}

// check refuses what the App Cluster's API server might take.
func check(claim *unstructured.Unstructured) error {
	if wrong := validation.IsDNS1123Subdomain(claim.GetName()); len(wrong) > 0 {
		return fmt.Errorf("its name is none: %s", wrong[0])
	}
	if permission.IsClosed(claim.GetNamespace()) {
		return fmt.Errorf("the namespace %s is closed to what a provider makes", claim.GetNamespace())
	}
	data, err := json.Marshal(claim.Object)
	if err == nil && len(data) > longestBody {
		err = fmt.Errorf("it has %d bytes, and %d is the most", len(data), longestBody)
	}
	return err
}

// room is for how many more adopted objects there is some, as the App Cluster's API server
// says now.
func (c Clients) room(ctx context.Context, limit int) (int, error) {
	list, err := c.Counted.List(ctx, metav1.ListOptions{LabelSelector: klutchsync.AdoptedLabel + "=true", Limit: int64(limit)})
	if err != nil {
		return 0, err
	}
	return max(limit-len(list.Items), 0), nil
}
