// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/klutch-go/sdk/bind"
)

// counted: a census says what the conditions say, and how long the credential lasts.
func (s *story) counted(t *testing.T) {
	t.Helper()
	s.countedAs(t, true)
	if k, err := bind.New(s.konnector, bind.Options{}); err != nil {
		t.Error(err)
	} else if all, ok := k.Census(); ok {
		t.Errorf("one that does not run counts: %+v", all)
	}
}

// countedAs waits until the census says that the one binding is well, or not.
func (s *story) countedAs(t *testing.T, well bool) {
	t.Helper()
	eventually(t, func() error {
		all, ok := s.census()
		if !ok || len(all) != 1 {
			return fmt.Errorf("census %v: %+v", ok, all)
		}
		b, now := all[0], time.Now()
		beats := b.Heartbeat.After(now.Add(-time.Minute)) && !b.Heartbeat.After(now)
		if b.Name != widgets || b.Ready != well || b.Up != well || !beats || !b.TokenEnds.After(now) || b.Sync.Objects == 0 {
			return fmt.Errorf("census: %+v", b)
		}
		return nil
	})
}
