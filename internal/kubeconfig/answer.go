// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/internal/text"
)

// sanitize makes an answer one that a client can be given: JSON, a refusal that can be
// shown to people, and a pause that is none for ever.
func (b *boundary) sanitize(resp *http.Response, r *http.Request) error {
	if wait, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && wait > longestWait {
		if _, has := r.Context().Deadline(); !has {
			resp.Header.Set("Retry-After", strconv.Itoa(longestWait))
		}
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return b.refusal(resp, r)
	}
	switch kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); {
	case resp.StatusCode >= http.StatusMultipleChoices || resp.StatusCode == http.StatusNoContent:
	case resp.Header.Get("Content-Type") == "" || err == nil && (kind == "application/json" || kind == "text/plain"): // as which API servers send OpenAPI
	default:
		return fmt.Errorf("it answers with %q where JSON was asked for", text.Clip(kind, 100))
	}
	return nil
}

// refusal shortens an answer that says no: its message ends in conditions, logs and
// terminals.
func (b *boundary) refusal(resp *http.Response, r *http.Request) error {
	if resp.ContentLength >= 0 && resp.ContentLength <= maxMessage {
		return nil
	}
	refusal, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal+1))
	if err != nil {
		return err
	}
	if len(refusal) > maxRefusal {
		return b.exceeded(r, "is a refusal of more than 1 MB")
	}
	if len(refusal) > maxMessage {
		refusal = shorten(refusal)
	}
	_ = resp.Body.Close()
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(refusal)), int64(len(refusal))
	resp.Header.Del("Content-Length")
	return nil
}

func shorten(answer []byte) []byte {
	status := metav1.Status{}
	if json.Unmarshal(answer, &status) != nil || status.Kind != "Status" {
		return answer[:maxMessage]
	}
	status.Message = text.Clip(status.Message, maxMessage)
	if d := status.Details; d != nil {
		d.Name, d.Group, d.Kind = text.Clip(d.Name, 300), text.Clip(d.Group, 300), text.Clip(d.Kind, 300)
		d.Causes = d.Causes[:min(len(d.Causes), 10)]
		for i := range d.Causes {
			c := &d.Causes[i]
			c.Type, c.Message, c.Field = metav1.CauseType(text.Clip(string(c.Type), 300)), text.Clip(c.Message, 300), text.Clip(c.Field, 300)
		}
	}
	short, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: text.Clip(status.Status, 100), Message: status.Message,
		Reason: metav1.StatusReason(text.Clip(string(status.Reason), 100)), Details: status.Details, Code: status.Code,
	})
	if err != nil {
		return answer[:maxMessage]
	}
	return short
}
