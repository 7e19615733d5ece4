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
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		return fmt.Errorf("it answers with %q where JSON was asked for", clip(kind, 100))
	}
	return nil
}

// refusal shortens an answer that says no: its message ends in conditions, logs and
// terminals.
func (b *boundary) refusal(resp *http.Response, r *http.Request) error {
	if resp.ContentLength >= 0 && resp.ContentLength <= maxMessage {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal+1))
	if err != nil {
		return err
	}
	if len(text) > maxRefusal {
		return b.exceeded(r, "is a refusal of more than 1 MB")
	}
	if len(text) > maxMessage {
		text = shorten(text)
	}
	_ = resp.Body.Close()
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	resp.Header.Del("Content-Length")
	return nil
}

func shorten(text []byte) []byte {
	status := metav1.Status{}
	if json.Unmarshal(text, &status) != nil || status.Kind != "Status" {
		return text[:maxMessage]
	}
	status.Message = clip(status.Message, maxMessage)
	if d := status.Details; d != nil {
		d.Name, d.Group, d.Kind = clip(d.Name, 300), clip(d.Group, 300), clip(d.Kind, 300)
		d.Causes = d.Causes[:min(len(d.Causes), 10)]
		for i := range d.Causes {
			c := &d.Causes[i]
			c.Type, c.Message, c.Field = metav1.CauseType(clip(string(c.Type), 300)), clip(c.Message, 300), clip(c.Field, 300)
		}
	}
	short, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: clip(status.Status, 100), Message: status.Message,
		Reason: metav1.StatusReason(clip(string(status.Reason), 100)), Details: status.Details, Code: status.Code,
	})
	if err != nil {
		return text[:maxMessage]
	}
	return short
}

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
