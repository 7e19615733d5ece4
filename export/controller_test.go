// SPDX-License-Identifier: Apache-2.0

package export

import (
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/auth"
)

func TestNewRefuses(t *testing.T) {
	provider := must(auth.New(auth.Config{Issuer: "https://issuer.example", ClientID: "klutch"}))
	sealer := must(auth.NewSealer(make([]byte, 32)))
	for want, opts := range map[string]Options{
		"namespace prefix":  {NamespacePrefix: "Cluster"},
		"token lifetime":    {TokenTTL: time.Minute},
		"API server URL":    {APIServer: APIServer{URL: "http://api.example.com"}},
		"both Provider":     {Provider: provider},
		"username claim":    {Users: Users{UsernameClaim: "name"}},
		"must be https":     {Provider: provider, Sealer: sealer, ExternalURL: "http://bind.example.com"},
		"scheme and a host": {Provider: provider, Sealer: sealer, ExternalURL: "https://bind.example.com/path"},
	} {
		if _, err := New(&rest.Config{}, opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
