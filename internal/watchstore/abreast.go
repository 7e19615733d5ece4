// SPDX-License-Identifier: Apache-2.0

package watchstore

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Abreast returns a transport for the watches of informers that others make. Before a watch goes
// on from a version it asks whether the API server has come as far: one that was restored from a
// backup neither refuses such a watch nor feeds it, for as long as it takes to write as much anew.
// The informer is told that the version has expired, and lists. A nil next is [http.DefaultTransport].
func Abreast(next http.RoundTripper) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	return abreast{next}
}

type abreast struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t abreast) RoundTrip(req *http.Request) (*http.Response, error) {
	q := req.URL.Query()
	version := q.Get("resourceVersion")
	if req.Method != http.MethodGet || q.Get("watch") == "" || version == "" || version == "0" || q.Has("sendInitialEvents") {
		return t.next.RoundTrip(req)
	}
	resp, err := t.next.RoundTrip(first(req))
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err // as the watch would be answered
	}
	now, err := listVersion(resp.Body)
	if err != nil {
		return nil, err
	}
	if Newer(version, now) {
		return answer(req, errBehind)
	}
	return t.next.RoundTrip(req)
}

// first is a request for the version of what a watch is of, and for the metadata of one object of it.
func first(watch *http.Request) *http.Request {
	req := watch.Clone(watch.Context())
	q := req.URL.Query()
	for _, option := range []string{"watch", "resourceVersion", "resourceVersionMatch", "allowWatchBookmarks", "timeoutSeconds", "timeout"} {
		q.Del(option)
	}
	q.Set("limit", "1")
	req.URL.RawQuery = q.Encode()
	req.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	return req
}

// listVersion reads the version of a list, and closes it.
func listVersion(body io.ReadCloser) (string, error) {
	defer func() { _ = body.Close() }()
	const most = 4 << 20 // one object is smaller
	var list metav1.PartialObjectMetadataList
	if err := json.NewDecoder(io.LimitReader(body, most)).Decode(&list); err != nil {
		return "", fmt.Errorf("read the version of a list: %w", err)
	}
	return list.ResourceVersion, nil
}

// answer is how an API server would say err.
func answer(req *http.Request, err interface{ Status() metav1.Status }) (*http.Response, error) {
	status := err.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	data, marshal := json.Marshal(status)
	if marshal != nil {
		return nil, marshal
	}
	return &http.Response{
		Status: http.StatusText(int(status.Code)), StatusCode: int(status.Code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(data))), ContentLength: int64(len(data)), Request: req,
	}, nil
}
