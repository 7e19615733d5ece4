// SPDX-License-Identifier: Apache-2.0

package testplatform

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

// A Fault answers a request in place of the honest handler, which it may use.
type Fault func(w http.ResponseWriter, r *http.Request, honest http.Handler)

const jsonType = "application/json"

// GzipBomb answers with a list whose blanks never end: a megabyte for each kilobyte on
// the wire, sent whether or not the client takes gzip.
func GzipBomb() Fault {
	member := func(text []byte) []byte {
		var b bytes.Buffer
		z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
		_, _ = z.Write(text)
		_ = z.Close()
		return b.Bytes()
	}
	begin, more := member([]byte(`{"apiVersion":"v1","kind":"List","items":[`)), member(bytes.Repeat([]byte(" "), 1<<20))
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Type", jsonType)
		flood(w, begin, func(int) []byte { return more })
	}
}

// Endless answers with code, begin, and more without end.
func Endless(code int, contentType, begin, more string) Fault {
	chunk := []byte(strings.Repeat(more, 1+(64<<10)/max(len(more), 1)))
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		flood(w, []byte(begin), func(int) []byte { return chunk })
	}
}

// EndlessList answers a list with copies of an object of other names, without end.
func EndlessList(example *unstructured.Unstructured) Fault {
	object := copies(example)
	begin := fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"1"},"items":[%s`,
		example.GetAPIVersion(), example.GetKind()+"List", object(0))
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", jsonType)
		flood(w, begin, func(n int) []byte { return append([]byte(","), object(n+1)...) })
	}
}

// EndlessPages answers a list with size copies of an object and a token for more of
// them, each time.
func EndlessPages(example *unstructured.Unstructured, size int) Fault {
	object := copies(example)
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		var page int
		_, _ = fmt.Sscanf(r.URL.Query().Get("continue"), "page-%d", &page)
		objects := make([]json.RawMessage, size)
		for i := range objects {
			objects[i] = object(page*size + i)
		}
		send(w, http.StatusOK, map[string]any{
			"apiVersion": example.GetAPIVersion(), "kind": example.GetKind() + "List", "items": objects,
			"metadata": map[string]any{"resourceVersion": "1", "continue": fmt.Sprintf("page-%d", page+1)},
		})
	}
}

// EndlessEvents answers a watch, or a list that is streamed, with events about copies
// of an object: eventType ADDED makes ever more objects, MODIFIED with same changes one
// without end.
func EndlessEvents(eventType string, example *unstructured.Unstructured, same bool) Fault {
	object := copies(example)
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", jsonType)
		flood(w, nil, func(n int) []byte {
			if same {
				n = 0
			}
			return fmt.Appendf(nil, `{"type":%q,"object":%s}`+"\n", eventType, object(n))
		})
	}
}

// copies makes copies of an object that differ in name, UID and version.
func copies(example *unstructured.Unstructured) func(n int) []byte {
	const mark = "0123456789"
	u := example.DeepCopy()
	u.SetName(u.GetName() + "-" + mark)
	u.SetUID("uid-" + mark)
	u.SetResourceVersion(mark)
	text, err := json.Marshal(u)
	if err != nil {
		panic(err) // an object of a test
	}
	return func(n int) []byte {
		return bytes.ReplaceAll(text, []byte(mark), fmt.Appendf(nil, "%d", 1_000_000_000+n))
	}
}

// Headers puts so many bytes of headers before the honest answer.
func Headers(size int) Fault {
	return func(w http.ResponseWriter, r *http.Request, honest http.Handler) {
		const each = 8 << 10
		for i := 0; i*each < size; i++ {
			w.Header().Set(fmt.Sprintf("X-Flood-%d", i), strings.Repeat("x", min(size-i*each, each)))
		}
		honest.ServeHTTP(w, r)
	}
}

// Trickle answers with a blank each time that the pause is over, and nothing else.
func Trickle(pause time.Duration) Fault {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", jsonType)
		for write(w, []byte(" ")) == nil {
			select {
			case <-r.Context().Done():
				return
			case <-time.After(pause):
			}
		}
	}
}

// Hang never answers.
func Hang() Fault {
	return func(_ http.ResponseWriter, r *http.Request, _ http.Handler) { <-r.Context().Done() }
}

// Slow answers honestly, but late.
func Slow(pause time.Duration) Fault {
	return func(w http.ResponseWriter, r *http.Request, honest http.Handler) {
		select {
		case <-r.Context().Done():
		case <-time.After(pause):
			honest.ServeHTTP(w, r)
		}
	}
}

// Answer answers with this, whatever was asked for: malformed documents, wrong kinds,
// wrong content types.
func Answer(code int, contentType, body string) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// Refuse answers with a Status, as API servers do.
func Refuse(code int, reason metav1.StatusReason, message string) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { refuse(w, code, reason, message) }
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	send(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message, //nolint:gosec // a status code
	})
}

// Redirect sends clients to another URL.
func Redirect(to string) Fault {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		http.Redirect(w, r, to, http.StatusTemporaryRedirect)
	}
}

// Elsewhere passes requests on to another API server, as a platform that was replaced.
func Elsewhere(other *rest.Config) Fault {
	there, err := proxy(other)
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		if err != nil {
			panic(err)
		}
		there.ServeHTTP(w, r)
	}
}

// Rewrite changes each object of the honest answer: one that is read, those of a list,
// and those of a watch.
func Rewrite(change func(*unstructured.Unstructured)) Fault {
	return func(w http.ResponseWriter, r *http.Request, honest http.Handler) {
		honest.ServeHTTP(&rewriter{ResponseWriter: w, change: change, watch: verbOf(r, address{}) == "watch"}, r)
	}
}

// A rewriter changes the objects of a JSON answer once they are complete.
type rewriter struct {
	http.ResponseWriter
	change func(*unstructured.Unstructured)
	watch  bool
	rest   []byte
}

// WriteHeader implements [http.ResponseWriter].
func (w *rewriter) WriteHeader(code int) {
	w.Header().Del("Content-Length")
	w.ResponseWriter.WriteHeader(code)
}

// Write implements [http.ResponseWriter].
func (w *rewriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		end := bytes.IndexByte(w.rest, '\n') // of an event, and of an answer
		if end < 0 && (w.watch || !json.Valid(w.rest)) {
			return len(p), nil
		}
		if end < 0 {
			end = len(w.rest) - 1
		}
		document := w.rest[:end+1]
		if _, err := w.ResponseWriter.Write(w.changed(document)); err != nil {
			return 0, err
		}
		if w.rest = w.rest[end+1:]; len(w.rest) == 0 {
			return len(p), nil
		}
	}
}

// Flush implements [http.Flusher].
func (w *rewriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

func (w *rewriter) changed(document []byte) []byte {
	var m map[string]any
	if json.Unmarshal(document, &m) != nil {
		return document
	}
	object := m
	if w.watch {
		object, _ = m["object"].(map[string]any)
	}
	if items, ok := object["items"].([]any); ok {
		for _, item := range items {
			if item, ok := item.(map[string]any); ok {
				w.change(&unstructured.Unstructured{Object: item})
			}
		}
	} else if object != nil {
		w.change(&unstructured.Unstructured{Object: object})
	}
	changed, err := json.Marshal(m)
	if err != nil {
		return document
	}
	return append(changed, '\n')
}

// flood writes without end.
func flood(w http.ResponseWriter, begin []byte, more func(n int) []byte) {
	err := write(w, begin)
	for n := 0; err == nil; n++ {
		if _, err = w.Write(more(n)); err == nil && n%16 == 0 {
			err = http.NewResponseController(w).Flush()
		}
	}
}

func write(w http.ResponseWriter, p []byte) error {
	if _, err := w.Write(p); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}

func send(w http.ResponseWriter, code int, document any) {
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(document)
}
