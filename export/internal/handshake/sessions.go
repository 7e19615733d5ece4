// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"

	"github.com/klutch-go/sdk/auth"
)

// What is kept of a session beside its cookie, where all replicas find it.
const (
	sessionEnded  = "session ended"
	sessionGroups = "session groups"
	offerTold     = "offer told"
)

// key is where something of a session is kept.
func (s *session) key(what string) string {
	sum := sha256.Sum256([]byte("klutch " + what + "\x00" + s.ID))
	return hex.EncodeToString(sum[:20])
}

// sessions are of people who have signed in: in sealed cookies, and what all replicas
// have to know, or what does not fit, in the DeviceStore.
type sessions struct {
	opts     *Options
	visitors *visitors
	pages    *renderer
	cookies  *cookies
}

// of returns the one that the browser brings, unless it has ended.
func (h *sessions) of(r *http.Request) (*session, error) {
	s := &session{}
	if err := h.cookies.open(r, SessionCookie, s); err != nil {
		return nil, err
	}
	if time.Since(s.Since) >= sessionLife {
		return nil, errNoCookie
	}
	err := h.recall(r.Context(), s)
	if errors.Is(err, errEnded) {
		h.visitors.misused(r, "session refused", append(s.who(), "reason", err.Error())...)
	}
	return s, err
}

// errEnded says that a browser brings a session that has ended: a copy, or one that was
// gone back to.
var errEnded = fmt.Errorf("%w: the session has ended", errNoCookie)

// recall completes a session that has not ended with what did not fit.
func (h *sessions) recall(ctx context.Context, s *session) error {
	store := h.opts.Devices
	if store == nil {
		return nil
	}
	if _, err := store.Get(ctx, s.key(sessionEnded)); !errors.Is(err, auth.ErrDevicePending) {
		return cmp.Or(err, errEnded)
	}
	if !s.GroupsKept {
		return nil
	}
	return h.recallGroups(ctx, s)
}

// recallGroups puts the groups into a session that were kept elsewhere.
func (h *sessions) recallGroups(ctx context.Context, s *session) error {
	sealed, err := h.opts.Devices.Get(ctx, s.key(sessionGroups))
	if errors.Is(err, auth.ErrDevicePending) {
		return errNoCookie
	}
	if err != nil {
		return err
	}
	data, err := h.opts.Sealer().Open(s.key(sessionGroups), string(sealed))
	if err != nil {
		return err
	}
	return json.Unmarshal(data, &s.Identity.Groups)
}

// keep puts a session into a cookie, and groups elsewhere that do not fit.
func (h *sessions) keep(ctx context.Context, w http.ResponseWriter, s *session) error {
	life := min(sessionIdle, time.Until(s.Since.Add(sessionLife)))
	err := h.cookies.set(w, SessionCookie, s, life)
	if !errors.Is(err, errTooLarge) || h.opts.Devices == nil {
		return err
	}
	if err := h.keepGroups(ctx, s); err != nil {
		return err
	}
	short := *s
	short.Identity.Groups, short.GroupsKept = nil, true
	return h.cookies.set(w, SessionCookie, &short, life)
}

func (h *sessions) keepGroups(ctx context.Context, s *session) error {
	data, err := json.Marshal(s.Identity.Groups)
	if err != nil {
		return err
	}
	sealed, err := h.opts.Sealer().SealUntil(s.key(sessionGroups), data, s.Since.Add(sessionLife))
	if err != nil {
		return err
	}
	return h.store(ctx, s, sessionGroups, []byte(sealed))
}

// store keeps something for as long as s may live, if it is not kept already.
func (h *sessions) store(ctx context.Context, s *session, what string, value []byte) error {
	err := h.opts.Devices.Create(ctx, s.key(what), value, s.Since.Add(sessionLife))
	if errors.Is(err, auth.ErrDeviceTaken) {
		return nil
	}
	return err
}

// use ends a session with its one answer: of any number of copies of the cookie,
// at any number of replicas, one gets there. The error is errEnded for all others.
func (h *sessions) use(ctx context.Context, s *session) error {
	if h.opts.Devices == nil {
		return nil
	}
	err := h.opts.Devices.Create(ctx, s.key(sessionEnded), []byte("-"), s.Since.Add(sessionLife))
	if errors.Is(err, auth.ErrDeviceTaken) {
		return errEnded
	}
	return err
}

// leave ends a session in which its person has signed out.
func (h *sessions) leave(ctx context.Context, s *session) {
	if err := h.use(ctx, s); err != nil && !errors.Is(err, errEnded) {
		logr.FromContextOrDiscard(ctx).Error(err, "a session that was left lives until its cookie ends", s.who()...)
	}
}

// open returns the session of the browser, or shows that there is none.
func (h *sessions) open(w http.ResponseWriter, r *http.Request) (*session, bool) {
	s, err := h.of(r)
	if err == nil {
		return s, true
	}
	if !errors.Is(err, errNoCookie) {
		h.pages.internal(w, r, err)
		return nil, false
	}
	h.pages.notSignedIn(w, r)
	return nil, false
}
