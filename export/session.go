// SPDX-License-Identifier: Apache-2.0

package export

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
)

// key is where something of a session is kept.
func (s *session) key(what string) string {
	sum := sha256.Sum256([]byte("klutch " + what + "\x00" + s.ID))
	return hex.EncodeToString(sum[:20])
}

// session returns the one that the browser brings, unless it has ended.
func (h *handler) session(r *http.Request) (*session, error) {
	s := &session{}
	if err := h.openCookie(r, sessionCookie, s); err != nil {
		return nil, err
	}
	if time.Since(s.Since) >= sessionLife {
		return nil, errNoCookie
	}
	err := h.recall(r.Context(), s)
	if errors.Is(err, errEnded) {
		h.misused(r, "session refused", append(s.who(), "reason", err.Error())...)
	}
	return s, err
}

// errEnded says that a browser brings a session that has ended: a copy, or one that was
// gone back to.
var errEnded = fmt.Errorf("%w: the session has ended", errNoCookie)

// recall completes a session that has not ended with what did not fit.
func (h *handler) recall(ctx context.Context, s *session) error {
	store := h.opts.Handshake.Devices
	if store == nil {
		return nil
	}
	if _, err := store.Get(ctx, s.key(sessionEnded)); !errors.Is(err, auth.ErrDevicePending) {
		return cmp.Or(err, errEnded)
	}
	if !s.GroupsKept {
		return nil
	}
	sealed, err := store.Get(ctx, s.key(sessionGroups))
	if errors.Is(err, auth.ErrDevicePending) {
		return errNoCookie
	}
	if err != nil {
		return err
	}
	data, err := h.sealer().Open(s.key(sessionGroups), string(sealed))
	if err != nil {
		return err
	}
	return json.Unmarshal(data, &s.Identity.Groups)
}

// keepSession puts a session into a cookie, and groups elsewhere that do not fit.
func (h *handler) keepSession(ctx context.Context, w http.ResponseWriter, s *session) error {
	life := min(sessionIdle, time.Until(s.Since.Add(sessionLife)))
	err := h.setCookie(w, sessionCookie, s, life)
	if !errors.Is(err, errTooLarge) || h.opts.Handshake.Devices == nil {
		return err
	}
	if err := h.keepGroups(ctx, s); err != nil {
		return err
	}
	short := *s
	short.Identity.Groups, short.GroupsKept = nil, true
	return h.setCookie(w, sessionCookie, &short, life)
}

func (h *handler) keepGroups(ctx context.Context, s *session) error {
	data, err := json.Marshal(s.Identity.Groups)
	if err != nil {
		return err
	}
	sealed, err := h.sealer().SealUntil(s.key(sessionGroups), data, s.Since.Add(sessionLife))
	if err != nil {
		return err
	}
	return h.keep(ctx, s, sessionGroups, []byte(sealed))
}

// keep keeps something for as long as s may live, if it is not kept already.
func (h *handler) keep(ctx context.Context, s *session, what string, value []byte) error {
	err := h.opts.Handshake.Devices.Create(ctx, s.key(what), value, s.Since.Add(sessionLife))
	if errors.Is(err, auth.ErrDeviceTaken) {
		return nil
	}
	return err
}

// useSession ends a session with its one answer: of any number of copies of the cookie,
// at any number of replicas, one gets there. The error is errEnded for all others.
func (h *handler) useSession(ctx context.Context, s *session) error {
	if h.opts.Handshake.Devices == nil {
		return nil
	}
	err := h.opts.Handshake.Devices.Create(ctx, s.key(sessionEnded), []byte("-"), s.Since.Add(sessionLife))
	if errors.Is(err, auth.ErrDeviceTaken) {
		return errEnded
	}
	return err
}

// leaveSession ends a session in which its person has signed out.
func (h *handler) leaveSession(ctx context.Context, s *session) {
	if err := h.useSession(ctx, s); err != nil && !errors.Is(err, errEnded) {
		logr.FromContextOrDiscard(ctx).Error(err, "a session that was left lives until its cookie ends", s.who()...)
	}
}
