// SPDX-License-Identifier: Apache-2.0

package klutch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestP29SealingOrder(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	name := func(age time.Duration) string { return now.Add(-age).Format(sessionKeyName) }
	young, settled, old := name(time.Minute), name(time.Hour), name(3*time.Hour)
	for _, test := range []struct {
		have []string
		want string // in order
		left []string
	}{
		{[]string{young}, young, []string{young}},
		{[]string{young, settled}, settled + " " + young, []string{settled, young}},
		{[]string{young, settled, old}, settled + " " + young + " " + old, []string{old, settled, young}},
		{[]string{settled, old, "1"}, settled + " " + old + " 1", []string{"1", old, settled}},
		{[]string{young, old, "1"}, old + " " + young + " 1", []string{old, young}}, // nothing sealed with 1 is left
		{[]string{"1", "2"}, "2 1", nil},
	} {
		data := map[string][]byte{}
		for _, n := range test.have {
			data[n] = []byte(n)
		}
		var got []string
		for _, key := range sealingOrder(data, now) {
			got = append(got, string(key))
		}
		if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%v (-want +got):\n%s", test.have, diff)
		}
		next, changed := rotated(data, now, 24*time.Hour)
		if test.left == nil { // too old: one more, and it does not seal yet
			if len(next) != 2 || !changed || string(sealingOrder(next, now)[0]) == "1" {
				t.Errorf("%v: rotated to %q", test.have, newestFirst(next))
			}
			continue
		}
		if diff := cmp.Diff(test.left, slices.Sorted(slices.Values(newestFirst(next)))); diff != "" || changed != (len(next) != len(data)) {
			t.Errorf("%v: rotated %t (-want +got):\n%s", test.have, changed, diff)
		}
	}
}

// P29: for a month two replicas that read at different times open, at every minute,
// what the other has sealed within the hour before, while keys come and go.
func TestP29RotationOverlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		one := &keyring{client: client, namespace: "n", life: sessionKeyLife}
		two := &keyring{client: client, namespace: "n", life: sessionKeyLife}
		var boxes []string
		used := map[string]bool{}
		for step := range 30 * 24 * 12 { // five minutes each
			for _, k := range []*keyring{one, two} {
				if k == one || step%2 == 0 {
					if err := k.load(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				box, err := k.current.Load().Seal("test", []byte("x"))
				if err != nil {
					t.Fatal(err)
				}
				if boxes = append(boxes, box); len(boxes) > 24 {
					boxes = boxes[1:]
				}
				for _, box := range boxes {
					if _, err := k.current.Load().Open("test", box); err != nil {
						t.Fatalf("step %d: %v", step, err)
					}
				}
			}
			secret, err := client.CoreV1().Secrets("n").Get(t.Context(), sessionSecret, metav1.GetOptions{})
			if err != nil || len(secret.Data) > 2 {
				t.Fatalf("%d keys: %v", len(secret.Data), err)
			}
			for name := range secret.Data {
				used[name] = true
			}
			time.Sleep(5 * time.Minute)
		}
		if len(used) < 4 || len(used) > 6 {
			t.Errorf("%d keys in a month", len(used))
		}
	})
}

// A cluster that is down, or does not let us write, does not end the backend.
func TestP29RotationFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		k := &keyring{client: client, namespace: "n", life: time.Minute}
		if err := k.load(t.Context()); err != nil {
			t.Fatal(err)
		}
		first := k.current.Load()
		for _, verb := range []string{"update", "get"} {
			client.PrependReactor(verb, "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no") })
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.run(ctx) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		stop()
		if err := <-done; err != nil || k.current.Load() != first {
			t.Errorf("%v", err)
		}
	})
}

// TestSessionKeysAreNotQuoted: an admission policy that quotes the Secret that it does not admit has the backend
// log no session key, and the log has one line when that begins, one an hour, and one when it ends.
func TestSessionKeysAreNotQuoted(t *testing.T) {
	for _, verb := range []string{"create", "update"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset()
				k := &keyring{client: client, namespace: "n", life: time.Minute}
				if verb == "update" {
					if err := k.load(t.Context()); err != nil {
						t.Fatal(err)
					}
					time.Sleep(2 * time.Minute)
				}
				var quoted []string
				var ended atomic.Bool
				client.PrependReactor(verb, "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
					secret := a.(clienttesting.CreateAction).GetObject().(*corev1.Secret) // an update has the same method
					if ended.Load() {
						return false, nil, nil
					}
					for _, key := range secret.Data {
						quoted = append(quoted, fmt.Sprintf("%x", key))
					}
					said := fmt.Sprintf("ValidatingAdmissionPolicy 'quoting' with binding 'b' denied request: it has %s", quoted)
					return true, nil, apierrors.NewForbidden(corev1.Resource("secrets"), secret.Name, errors.New(said))
				})
				var lines []string
				ctx, stop := context.WithCancel(logr.NewContext(t.Context(), funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})))
				done := make(chan error, 1)
				go func() { done <- k.run(ctx) }()
				time.Sleep(2*time.Hour + time.Second)
				synctest.Wait()
				ended.Store(true)
				time.Sleep(2 * time.Minute)
				stop()
				if err := <-done; err != nil || len(quoted) < 100 {
					t.Errorf("%d keys were quoted, and the end is %v", len(quoted), err)
				}
				all := strings.Join(lines, "\n")
				for _, key := range quoted {
					if strings.Contains(all, key) {
						t.Fatalf("a key is logged: %s", all)
					}
				}
				lines = slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, `"msg"="session keys rotated"`) })
				if len(lines) != 4 || !strings.Contains(lines[0], "the API server does not permit it (ValidatingAdmissionPolicy 'quoting')") || !strings.Contains(lines[3], "up to date again") {
					t.Errorf("%d lines: %s", len(lines), all)
				}
			})
		})
	}
}
