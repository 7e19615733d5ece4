// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
)

// The keys that an API server stores objects under.
const (
	firstKey  = "/registry/"
	beyondKey = "/registry0"
)

// An entry is an object as etcd stores it. In JSON its bytes are Base64 and its numbers are strings, as in etcd's gateway.
type entry struct {
	Key      []byte `json:"key"`
	Value    []byte `json:"value"`
	Revision int64  `json:"mod_revision,string"`
}

// etcd talks to the etcd of a cluster past its API server, which sees each write on its watches.
type etcd struct{ client *http.Client }

func newEtcd(dir string) *etcd {
	socket := filepath.Join(dir, etcdSocket)
	return &etcd{&http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}}
}

func (e *etcd) close() { e.client.CloseIdleConnections() }

// list returns all objects, without their values if keysOnly.
func (e *etcd) list(ctx context.Context, keysOnly bool) (map[string]entry, error) {
	var answer struct {
		Entries []entry `json:"kvs"`
	}
	request := map[string]any{"key": []byte(firstKey), "range_end": []byte(beyondKey), "keys_only": keysOnly}
	if err := e.post(ctx, "range", request, &answer); err != nil {
		return nil, err
	}
	all := make(map[string]entry, len(answer.Entries))
	for _, found := range answer.Entries {
		all[string(found.Key)] = found
	}
	return all, nil
}

func (e *etcd) put(ctx context.Context, what entry) (revision int64, err error) {
	var answer struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
	}
	err = e.post(ctx, "put", map[string]any{"key": what.Key, "value": what.Value}, &answer)
	return answer.Header.Revision, err
}

func (e *etcd) remove(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := e.post(ctx, "deleterange", map[string]any{"key": []byte(key)}, &struct{}{}); err != nil {
			return err
		}
	}
	return nil
}

func (e *etcd) post(ctx context.Context, method string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://etcd/v3/kv/"+method, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := e.client.Do(req)
	if err != nil {
		return fmt.Errorf("ask etcd: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, data)
	}
	if err == nil {
		err = json.Unmarshal(data, answer)
	}
	if err != nil {
		return fmt.Errorf("%s in etcd: %w", method, err)
	}
	return nil
}
