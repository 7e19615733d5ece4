// SPDX-License-Identifier: Apache-2.0

package auth_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/oauth2"

	"github.com/klutch-go/sdk/auth"
)

const (
	deviceVerifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
	verification   = "https://klutch.example.com/device"
	ada, mallory   = "https://issuer/ada", "https://issuer/mallory"
)

// memory is a DeviceStore that counts.
type memory struct {
	mu             sync.Mutex
	values         map[string][]byte
	creates, reads int
}

func (m *memory) Create(_ context.Context, key string, value []byte, _ time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.creates++
	if m.values[key] != nil {
		return auth.ErrDeviceTaken
	}
	if m.values == nil {
		m.values = map[string][]byte{}
	}
	m.values[key] = bytes.Clone(value)
	return nil
}

func (m *memory) Get(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	if m.values[key] == nil {
		return nil, auth.ErrDevicePending
	}
	return m.values[key], nil
}

// replicas are two servers with one store.
type replicas struct {
	one, two *auth.Devices
	store    *memory
}

func newReplicas(t *testing.T) replicas {
	t.Helper()
	r := replicas{store: &memory{}}
	for _, to := range []**auth.Devices{&r.one, &r.two} {
		devices, err := auth.NewDevices(newSealer(t, key(1)), r.store, auth.DevicesOptions{VerificationURL: verification})
		if err != nil {
			t.Fatal(err)
		}
		*to = devices
	}
	return r
}

func beginDevice(t *testing.T, d *auth.Devices, request string) *oauth2.DeviceAuthResponse {
	t.Helper()
	answer, err := d.Begin(oauth2.S256ChallengeFromVerifier(deviceVerifier), []byte(request))
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// claim has a person claim a code while the program polls.
func (r replicas) claim(t *testing.T, begun *oauth2.DeviceAuthResponse, who string) *auth.Device {
	t.Helper()
	if _, err := r.two.Claim(t.Context(), begun.UserCode, who); !errors.Is(err, auth.ErrDevicePending) {
		t.Fatalf("Claim before the program has polled = %v, want ErrDevicePending", err)
	}
	expectPoll(t, r.one, begun, "authorization_pending")
	device, err := r.two.Claim(t.Context(), begun.UserCode, who)
	if err != nil {
		t.Fatal(err)
	}
	return device
}

func expectPoll(t *testing.T, d *auth.Devices, begun *oauth2.DeviceAuthResponse, want string) {
	t.Helper()
	request, answer, err := d.Poll(t.Context(), begun.DeviceCode, deviceVerifier)
	got := string(request) + " " + string(answer)
	if err != nil {
		got = err.Error()
	}
	if got != want {
		t.Errorf("Poll = %q, want %q", got, want)
	}
}

func TestDeviceLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t)
		begun := beginDevice(t, r.one, "request")
		if begun.VerificationURI != verification || begun.VerificationURIComplete != verification+"?user_code="+begun.UserCode {
			t.Errorf("the person is sent to %s, %s", begun.VerificationURI, begun.VerificationURIComplete)
		}
		expectPoll(t, r.two, begun, "authorization_pending")
		device := r.claim(t, begun, ada)
		if device.UserCode != begun.UserCode || string(device.Request) != "request" || !device.Expiry.Equal(begun.Expiry) {
			t.Errorf("device = %+v", device)
		}
		expectPoll(t, r.two, begun, "authorization_pending")
		if err := r.one.Answer(t.Context(), device, []byte("answer")); err != nil {
			t.Fatal(err)
		}
		if err := r.two.Refuse(t.Context(), device, auth.Error{Code: "access_denied", Description: "late"}); !errors.Is(err, auth.ErrDeviceTaken) {
			t.Errorf("a second answer = %v, want ErrDeviceTaken", err)
		}
		expectPoll(t, r.two, begun, "request answer")
	})
}

func TestDeviceLoginRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t)
		begun := beginDevice(t, r.one, "request")
		if err := r.two.Refuse(t.Context(), r.claim(t, begun, ada), auth.Error{Code: "invalid_scope", Description: "not on offer"}); err != nil {
			t.Fatal(err)
		}
		expectPoll(t, r.two, begun, "invalid_scope: not on offer")
	})
}

func TestP3UserCodeBelongsToOneIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t)
		begun := beginDevice(t, r.one, "request")
		device := r.claim(t, begun, ada)
		if d, err := r.one.Claim(t.Context(), begun.UserCode, mallory); !errors.Is(err, auth.ErrDeviceTaken) {
			t.Errorf("Claim of another's code = %+v, %v, want ErrDeviceTaken", d, err)
		}
		if d, err := r.one.Claim(t.Context(), begun.UserCode, ""); !errors.Is(err, auth.ErrUserCode) {
			t.Errorf("Claim without an identity = %+v, %v", d, err)
		}
		again, err := r.one.Claim(t.Context(), strings.ToLower(begun.UserCode), ada)
		if err != nil || again.ID != device.ID {
			t.Errorf("Claim again = %+v, %v, want the same login", again, err)
		}
	})
}

func TestP3DeviceCodeIsItsProgramsAlone(t *testing.T) {
	r := newReplicas(t)
	begun, other := beginDevice(t, r.one, "request"), beginDevice(t, r.one, "another")
	device := r.claim(t, begun, ada)
	if err := r.one.Answer(t.Context(), device, []byte("answer")); err != nil {
		t.Fatal(err)
	}
	reads := r.store.reads
	for name, tt := range map[string]struct{ code, verifier string }{
		"no verifier":      {begun.DeviceCode, ""},
		"another verifier": {begun.DeviceCode, deviceVerifier + "x"},
		"no code":          {"", deviceVerifier},
		"the user code":    {begun.UserCode, deviceVerifier},
		"a changed code":   {begun.DeviceCode[:40] + "AAAA" + begun.DeviceCode[44:], deviceVerifier},
		"another purpose":  {seal(t, newSealer(t, key(1)), "session", "{}"), deviceVerifier},
	} {
		_, answer, err := r.two.Poll(t.Context(), tt.code, tt.verifier)
		var refused *auth.Error
		if !errors.As(err, &refused) || refused.Code != "invalid_grant" || answer != nil {
			t.Errorf("Poll with %s = %q, %v, want invalid_grant", name, answer, err)
		}
	}
	if r.store.reads != reads {
		t.Error("junk has cost look-ups")
	}
	expectPoll(t, r.two, other, "authorization_pending")
	expectPoll(t, r.two, begun, "request answer")
}

func TestP10StrangersWriteNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t)
		for range 100 {
			begun := beginDevice(t, r.one, "request")
			expectPoll(t, r.two, begun, "authorization_pending")
		}
		if r.store.creates != 0 {
			t.Errorf("strangers made the store create %d values", r.store.creates)
		}
		code := beginDevice(t, r.one, "request").UserCode
		reads := r.store.reads
		for _, typed := range []string{"", "BCDFG-HJKLM", "BCDFGHJKLM", code[:10], mistype(code), code + "B", "aaaaa-aaaaa"} {
			if d, err := r.one.Claim(t.Context(), typed, ada); !errors.Is(err, auth.ErrUserCode) {
				t.Errorf("Claim of %q = %+v, %v, want ErrUserCode", typed, d, err)
			}
		}
		if r.store.creates != 0 || r.store.reads != reads {
			t.Errorf("mistyped codes have cost %d writes and %d reads", r.store.creates, r.store.reads-reads)
		}
		if _, err := r.one.Begin("short", nil); err == nil {
			t.Error("Begin without a challenge succeeded")
		}
		if _, err := r.one.Begin(oauth2.S256ChallengeFromVerifier("v"), make([]byte, 5000)); err == nil {
			t.Error("Begin with 5 000 bytes succeeded")
		}
	})
}

// mistype changes the letters that only we can know, so that no luck makes it good.
func mistype(code string) string {
	last := byte('B')
	if code[10] == 'B' {
		last = 'C'
	}
	return code[:10] + string(last)
}

func TestDeviceLoginExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t)
		begun := beginDevice(t, r.one, "request")
		device := r.claim(t, begun, ada)
		time.Sleep(10*time.Minute + time.Second)
		expectPoll(t, r.one, begun, "expired_token")
		if d, err := r.one.Claim(t.Context(), begun.UserCode, ada); !errors.Is(err, auth.ErrUserCode) {
			t.Errorf("Claim = %+v, %v, want ErrUserCode", d, err)
		}
		if err := r.one.Answer(t.Context(), device, nil); !errors.Is(err, auth.ErrUserCode) {
			t.Errorf("Answer = %v, want ErrUserCode", err)
		}
		time.Sleep(10 * time.Minute)
		reads := r.store.reads
		if _, err := r.one.Claim(t.Context(), begun.UserCode, ada); !errors.Is(err, auth.ErrUserCode) || r.store.reads != reads {
			t.Errorf("Claim of an old code = %v with %d look-ups", err, r.store.reads-reads)
		}
	})
}

func TestP29DeviceLoginOutlivesARotation(t *testing.T) {
	store := &memory{}
	devices := func(keys ...[]byte) *auth.Devices {
		d, err := auth.NewDevices(newSealer(t, keys...), store, auth.DevicesOptions{VerificationURL: verification})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	old, rotated := devices(key(1)), devices(key(2), key(1))
	r := replicas{one: rotated, two: rotated, store: store}
	begun := beginDevice(t, old, "request")
	if err := rotated.Answer(t.Context(), r.claim(t, begun, ada), []byte("answer")); err != nil {
		t.Fatal(err)
	}
	expectPoll(t, rotated, begun, "request answer")
	if d, err := devices(key(3)).Claim(t.Context(), begun.UserCode, ada); !errors.Is(err, auth.ErrUserCode) {
		t.Errorf("Claim at a stranger's = %+v, %v", d, err)
	}
}

// A writer of the store can neither make an answer nor move one.
func TestStoredValuesCannotBeForged(t *testing.T) {
	r := newReplicas(t)
	begun, other := beginDevice(t, r.one, "request"), beginDevice(t, r.one, "another")
	if err := r.one.Answer(t.Context(), r.claim(t, begun, mallory), []byte("mallory's")); err != nil {
		t.Fatal(err)
	}
	before := map[string]bool{}
	for k, v := range r.store.values {
		before[k] = true
		if bytes.Contains(v, []byte("mallory")) || !regexp.MustCompile(`^[0-9a-f]{40}$`).MatchString(k) {
			t.Errorf("the store knows %s: %s", k, v)
		}
	}
	if err := r.one.Answer(t.Context(), r.claim(t, other, ada), []byte("ada's")); err != nil {
		t.Fatal(err)
	}
	for to := range r.store.values {
		if before[to] {
			continue
		}
		kept := r.store.values[to]
		for from := range before {
			r.store.values[to] = r.store.values[from]
			if _, answer, err := r.one.Poll(t.Context(), other.DeviceCode, deviceVerifier); err == nil && string(answer) != "ada's" {
				t.Errorf("Poll with a moved value = %q", answer)
			}
		}
		r.store.values[to] = kept
	}
	expectPoll(t, r.one, other, "another ada's")
}

func TestOneOfManyClaimsAndAnswersCounts(t *testing.T) {
	r := newReplicas(t)
	begun := beginDevice(t, r.one, "request")
	device := r.claim(t, begun, ada)
	var mu sync.Mutex
	var good int
	var waiting sync.WaitGroup
	for i := range 20 {
		waiting.Go(func() {
			err := r.two.Answer(t.Context(), device, fmt.Append(nil, i))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				good++
			}
		})
	}
	waiting.Wait()
	if good != 1 {
		t.Errorf("%d answers were taken, want one", good)
	}
}

func TestNewDevices(t *testing.T) {
	sealer := newSealer(t, key(1))
	for name, tt := range map[string]struct {
		sealer *auth.Sealer
		store  auth.DeviceStore
		opts   auth.DevicesOptions
		ok     bool
	}{
		"good":            {sealer, &memory{}, auth.DevicesOptions{VerificationURL: verification}, true},
		"no URL":          {sealer, &memory{}, auth.DevicesOptions{}, false},
		"plain http":      {sealer, &memory{}, auth.DevicesOptions{VerificationURL: "http://klutch.example.com/"}, false},
		"no sealer":       {nil, &memory{}, auth.DevicesOptions{VerificationURL: verification}, false},
		"no store":        {sealer, nil, auth.DevicesOptions{VerificationURL: verification}, false},
		"no time":         {sealer, &memory{}, auth.DevicesOptions{VerificationURL: verification, Life: time.Second}, false},
		"a short pause":   {sealer, &memory{}, auth.DevicesOptions{VerificationURL: verification, Interval: time.Millisecond}, false},
		"a negative life": {sealer, &memory{}, auth.DevicesOptions{VerificationURL: verification, Life: -time.Second}, false},
	} {
		if _, err := auth.NewDevices(tt.sealer, tt.store, tt.opts); (err == nil) != tt.ok {
			t.Errorf("NewDevices with %s = %v, want success %t", name, err, tt.ok)
		}
	}
}

func TestUserCodesAreEasyToTypeAndHardToGuess(t *testing.T) {
	r := newReplicas(t)
	seen, letters := map[string]bool{}, map[rune]int{}
	for range 2000 {
		code := beginDevice(t, r.one, "").UserCode
		if !regexp.MustCompile(`^[B-DF-HJ-NP-TV-XZ]{5}-[B-DF-HJ-NP-TV-XZ]{5}$`).MatchString(code) {
			t.Fatalf("user code %s", code)
		}
		if seen[code] {
			t.Fatalf("user code %s twice", code)
		}
		seen[code] = true
		for _, l := range strings.ReplaceAll(code, "-", "") {
			letters[l]++
		}
	}
	if len(letters) != 20 {
		t.Errorf("%d letters are in use, want 20", len(letters))
	}
	for l, n := range letters { // 1000 each, deviation 31
		if n < 800 || n > 1200 {
			t.Errorf("%c is used %d times, want about 1000", l, n)
		}
	}
}

func FuzzUserCode(f *testing.F) {
	for _, seed := range []string{"BCDFG-HJKLM", "bcdfghjklm", " b c d f g h j k l m ", "BCDFG‑HJKLM", "BCDFG-HJKL", "AAAAA-AAAAA", "ſſſſſſſſſſ", "\x00", "K"} {
		f.Add(seed)
	}
	shape := regexp.MustCompile(`^[BCDFGHJKLMNPQRSTVWXZ]{5}-[BCDFGHJKLMNPQRSTVWXZ]{5}$`)
	f.Fuzz(func(t *testing.T, typed string) {
		code := auth.NormalizeUserCode(typed)
		if code == "" {
			return
		}
		if !shape.MatchString(code) {
			t.Errorf("NormalizeUserCode(%q) = %q", typed, code)
		}
		for _, as := range []string{code, strings.ToLower(code), strings.ReplaceAll(code, "-", ""), " " + code + "\t", strings.ReplaceAll(code, "-", " – ")} {
			if again := auth.NormalizeUserCode(as); again != code {
				t.Errorf("NormalizeUserCode(%q) = %q, want %q", as, again, code)
			}
		}
	})
}
