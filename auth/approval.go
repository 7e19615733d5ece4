// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/oauth2"
)

const (
	deviceCodePurpose = "device code"
	maxDeviceRequest  = 4 << 10
)

// A DeviceStore keeps small values for the two ends of device logins, which may
// meet different replicas. Values are sealed and keys tell nothing: 40 digits and
// letters a to f. A Kubernetes object for each key will do: create is its Create,
// and get must not answer from a view that may be stale about a key that this or
// another replica has created before the request came in by more than a poll
// interval.
type DeviceStore interface {
	// Create keeps value under key until expiry or longer. The error is
	// ErrDeviceTaken if there is a value already, which stays: of any number of
	// replicas that create a key one succeeds.
	Create(ctx context.Context, key string, value []byte, expiry time.Time) error
	// Get returns the value under key, or ErrDevicePending if there is none.
	Get(ctx context.Context, key string) ([]byte, error)
}

// DevicesOptions tune Devices.
type DevicesOptions struct {
	// VerificationURL is the page on which a person types a user code. Its query
	// parameter user_code, if given, is one.
	VerificationURL string
	// Life is how long a person has to decide; 0 means 10 minutes.
	Life time.Duration
	// Interval is how often a program is to ask; 0 means 5 seconds.
	Interval time.Duration
}

// Devices is the server's end of the device authorization grant (RFC 8628). It has
// no state: all that a login is travels sealed in the device code, which the
// program brings at every poll, and three small values in a [DeviceStore] let the
// replicas that the program and the person's browser talk to find one another:
//
//	program: Begin            nothing is written, so strangers cannot fill the store
//	person:  signs in, Claim  → "a signed-in person has typed this user code"
//	program: Poll             → "this is what I ask for" (only now that it is claimed)
//	person:  Claim again      reads the program's request, decides: Answer or Refuse
//	program: Poll             gets the answer
//
// So a person sees a page only for a code at which a program is waiting right now.
// A user code belongs to the first identity that claims it, and has one answer.
// The caller has to let only signed-in people call Claim, Answer and
// Refuse, limit Claim by identity and Begin and Poll by address (with slow_down as
// the error), and use up what an answer grants, since a program may poll again
// after it got one.
type Devices struct {
	sealer *Sealer
	store  DeviceStore
	opts   DevicesOptions
}

// NewDevices returns Devices for a page at opts.VerificationURL.
func NewDevices(sealer *Sealer, store DeviceStore, opts DevicesOptions) (*Devices, error) {
	if _, err := parseSecure(opts.VerificationURL); err != nil {
		return nil, fmt.Errorf("verification URL: %w", err)
	}
	if sealer == nil || store == nil {
		return nil, errors.New("device logins need a sealer and a store")
	}
	opts.Life = cmp.Or(opts.Life, 10*time.Minute)
	opts.Interval = cmp.Or(opts.Interval, pollInterval)
	if opts.Life <= 0 || opts.Interval < time.Second || opts.Interval > opts.Life {
		return nil, errors.New("device logins need an interval of a second or more that is shorter than their life")
	}
	return &Devices{sealer: sealer, store: store, opts: opts}, nil
}

// A Device is a login that a person has claimed and may answer. It may travel in a
// sealed session.
type Device struct {
	// ID names the login for good.
	ID string `json:"id"`
	// UserCode is what terminal and page both show.
	UserCode string `json:"userCode"`
	// Request is what Begin was given.
	Request []byte `json:"request"`
	// Expiry is when the program stops waiting.
	Expiry time.Time `json:"expiry"`
}

// deviceCode is what a device code stands for.
type deviceCode struct {
	Device

	Challenge string `json:"challenge"`
}

// deviceAnswered is what a person has decided.
type deviceAnswered struct {
	Answer  []byte `json:"answer,omitempty"`
	Refused *Error `json:"refused,omitempty"`
}

// Begin answers a device authorization request, without I/O. The challenge is the
// S256 challenge of the program's PKCE verifier; request is what Claim and Poll
// return again, 4 KB at most. The answer is to be sent as JSON.
func (d *Devices) Begin(challenge string, request []byte) (*oauth2.DeviceAuthResponse, error) {
	now := time.Now()
	if len(challenge) != 43 || len(request) > maxDeviceRequest {
		return nil, newError("invalid_request", "no S256 challenge, or too much asked")
	}
	code := deviceCode{Challenge: challenge, Device: Device{
		ID: rand.Text(), UserCode: d.sealer.userCode(now, d.opts.Life), Request: request, Expiry: now.Add(d.opts.Life),
	}}
	plain, err := json.Marshal(code)
	if err != nil {
		return nil, fmt.Errorf("encode device code: %w", err)
	}
	sealed, err := d.sealer.SealUntil(deviceCodePurpose, plain, code.Expiry)
	if err != nil {
		return nil, err
	}
	return &oauth2.DeviceAuthResponse{
		DeviceCode: sealed, UserCode: code.UserCode, Expiry: code.Expiry, Interval: int64(d.opts.Interval / time.Second),
		VerificationURI: d.opts.VerificationURL, VerificationURIComplete: withUserCode(d.opts.VerificationURL, code.UserCode),
	}, nil
}

// Claim gives the login of a user code, as typed, to a person who has signed in;
// identity is their issuer and subject, in any one form. The error is
// ErrDevicePending until the program has polled once more: show a page that asks
// again after a second or two, and says after two intervals that no terminal is
// waiting. It is ErrUserCode for what was never issued or is too old, without I/O,
// and ErrDeviceTaken for a code that is another's.
func (d *Devices) Claim(ctx context.Context, typed, identity string) (*Device, error) {
	code := NormalizeUserCode(typed)
	if identity == "" || !d.sealer.issued(code, time.Now(), d.opts.Life) {
		return nil, ErrUserCode
	}
	claim := deviceKey("claim", code)
	err := d.create(ctx, claim, []byte(identity), time.Now().Add(2*d.opts.Life))
	if errors.Is(err, ErrDeviceTaken) {
		err = d.claimedBy(ctx, claim, identity)
	}
	if err != nil {
		return nil, err
	}
	plain, err := d.get(ctx, deviceKey("request", code))
	device := &Device{}
	switch {
	case errors.Is(err, ErrExpired), err == nil && json.Unmarshal(plain, device) != nil:
		return nil, ErrUserCode
	case err != nil:
		return nil, err
	}
	return device, nil
}

func (d *Devices) claimedBy(ctx context.Context, claim, identity string) error {
	owner, err := d.get(ctx, claim)
	if err == nil && subtle.ConstantTimeCompare(owner, []byte(identity)) != 1 {
		return ErrDeviceTaken
	}
	return err
}

// Answer gives the program what the person has agreed to. The error is
// ErrDeviceTaken if the login has an answer already.
func (d *Devices) Answer(ctx context.Context, device *Device, answer []byte) error {
	return d.decide(ctx, device, deviceAnswered{Answer: answer})
}

// Refuse tells the program that the person, or the server, said no, and why: with
// access_denied, or another code that ends a login, such as invalid_scope. The error
// is ErrDeviceTaken if the login has an answer already.
func (d *Devices) Refuse(ctx context.Context, device *Device, why Error) error {
	return d.decide(ctx, device, deviceAnswered{Refused: newError(why.Code, why.Description)})
}

func (d *Devices) decide(ctx context.Context, device *Device, decision deviceAnswered) error {
	if time.Now().After(device.Expiry) {
		return ErrUserCode
	}
	plain, err := json.Marshal(decision)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	return d.create(ctx, deviceKey("answer", device.ID), plain, device.Expiry)
}

// Poll returns the answer to a program that brings its device code and verifier,
// and what it asked for. Until there is one the error is an [*Error] as RFC 8628
// section 3.5 says: authorization_pending, what Refuse was given, expired_token or,
// for a code that is not ours or not this program's, invalid_grant; the last two
// cost no I/O.
func (d *Devices) Poll(ctx context.Context, code, verifier string) (request, answer []byte, err error) {
	login, err := d.open(code, verifier)
	if err != nil {
		return nil, nil, err
	}
	switch _, err := d.get(ctx, deviceKey("claim", login.UserCode)); {
	case errors.Is(err, ErrDevicePending):
		return nil, nil, newError(codePending, "")
	case err != nil:
		return nil, nil, err
	}
	if answer, err = d.answer(ctx, login); err != nil {
		return nil, nil, err
	}
	return login.Request, answer, nil
}

// open checks all that can be checked of a device code without looking anything up.
func (d *Devices) open(code, verifier string) (*deviceCode, error) {
	plain, err := d.sealer.Open(deviceCodePurpose, code)
	login := &deviceCode{}
	switch {
	case errors.Is(err, ErrExpired):
		return nil, newError(codeExpired, "")
	case err != nil || json.Unmarshal(plain, login) != nil:
		return nil, newError(codeInvalid, "this is not a device code of this server")
	}
	challenge := oauth2.S256ChallengeFromVerifier(verifier)
	if subtle.ConstantTimeCompare([]byte(challenge), []byte(login.Challenge)) != 1 {
		return nil, newError(codeInvalid, "the device code belongs to another program")
	}
	return login, nil
}

// answer returns the answer to a login that has been claimed, or has the person see
// the program's request.
func (d *Devices) answer(ctx context.Context, login *deviceCode) ([]byte, error) {
	plain, err := d.get(ctx, deviceKey("answer", login.ID))
	if errors.Is(err, ErrDevicePending) {
		return nil, d.announce(ctx, login)
	}
	var decision deviceAnswered
	switch {
	case err != nil:
		return nil, err
	case json.Unmarshal(plain, &decision) != nil:
		return nil, newError(codeInvalid, "the answer makes no sense")
	case decision.Refused != nil:
		return nil, decision.Refused
	default:
		return decision.Answer, nil
	}
}

func (d *Devices) announce(ctx context.Context, login *deviceCode) error {
	plain, err := json.Marshal(login.Device)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	err = d.create(ctx, deviceKey("request", login.UserCode), plain, login.Expiry)
	if err != nil && !errors.Is(err, ErrDeviceTaken) {
		return err
	}
	return newError(codePending, "")
}

// create and get seal values for their key, so that a writer of the store
// can neither make an answer nor move one.
func (d *Devices) create(ctx context.Context, key string, plain []byte, expiry time.Time) error {
	sealed, err := d.sealer.SealUntil("device value "+key, plain, expiry)
	if err != nil {
		return err
	}
	return d.store.Create(ctx, key, []byte(sealed), expiry)
}

func (d *Devices) get(ctx context.Context, key string) ([]byte, error) {
	sealed, err := d.store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return d.sealer.Open("device value "+key, string(sealed))
}

func deviceKey(kind, code string) string {
	sum := sha256.Sum256([]byte("klutch device " + kind + "\x00" + code))
	return hex.EncodeToString(sum[:20])
}

func withUserCode(verificationURL, code string) string {
	u, err := parseSecure(verificationURL)
	if err != nil {
		return ""
	}
	query := u.Query()
	query.Set("user_code", code)
	u.RawQuery = query.Encode()
	return u.String()
}
