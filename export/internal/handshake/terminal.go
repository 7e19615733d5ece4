// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"context"
	"encoding/json"
	"net/url"

	"github.com/go-logr/logr"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/tenant"
)

// terminals are the programs on machines without a browser that wait for a person.
type terminals struct {
	opts   *Options
	limits *limits
}

func (h *terminals) devices() (*auth.Devices, error) {
	return auth.NewDevices(h.opts.Sealer(), h.opts.Devices, auth.DevicesOptions{VerificationURL: h.opts.url(devicePage)})
}

// claimed is the device of a session, with what it asks for put into the session.
func (h *terminals) claimed(ctx context.Context, s *session) (*auth.Device, error) {
	devices, err := h.devices()
	if err != nil {
		return nil, err
	}
	device, err := devices.Claim(ctx, s.Login.UserCode, s.account())
	if err != nil {
		return nil, err
	}
	l := login{}
	if err := json.Unmarshal(device.Request, &l); err != nil {
		return nil, auth.ErrUserCode
	}
	l.UserCode, device.Request = device.UserCode, nil // what was asked need not be kept twice
	s.Login = l
	return device, nil
}

// answer keeps what a login has ended with until the program asks for it.
func (h *terminals) answer(ctx context.Context, device *auth.Device, answer url.Values) error {
	devices, err := h.devices()
	if err != nil {
		return err
	}
	if answer.Has("error") {
		return devices.Refuse(ctx, device, auth.Error{Code: answer.Get("error"), Description: answer.Get("error_description")})
	}
	return devices.Answer(ctx, device, []byte(answer.Get("code")))
}

// poll returns the one-time code that a person has granted to the program.
func (h *terminals) poll(ctx context.Context, form url.Values) (string, error) {
	if h.limits.polls.Take(tenant.Digest(form.Get("device_code"))) > 0 {
		return "", &OAuthError{Code: "slow_down", Description: "asked more often than agreed"}
	}
	devices, err := h.devices()
	if err != nil {
		return "", err
	}
	_, answer, err := devices.Poll(ctx, form.Get("device_code"), form.Get("code_verifier"))
	return string(answer), err
}

// logout lets the program know that its person has gone.
func (h *terminals) logout(ctx context.Context, s *session) {
	if err := h.answer(ctx, s.Device, signedOut()); err != nil {
		logr.FromContextOrDiscard(ctx).V(1).Info("a device is left waiting", "reason", err.Error())
	}
}
