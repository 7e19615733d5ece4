// SPDX-License-Identifier: Apache-2.0

package watchstore

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"hash/fnv"
	"io"
	"math"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// A Record is an object as it rests in a Store: a tenth of the size that its
// maps and slices would have. It is decoded at a read.
type Record struct {
	name    cache.ObjectName
	uid     types.UID
	version string
	// Digest is that of its status.
	Digest uint32
	body   string
	names  *dictionary
	hot    atomic.Pointer[unstructured.Unstructured] // decoded; nil if it was not read for a while
}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (c *Record) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Name: c.name.Name, Namespace: c.name.Namespace, UID: c.uid, ResourceVersion: c.version}
}

// Full is the object. It must not be changed.
func (c *Record) Full() *unstructured.Unstructured {
	if u := c.hot.Load(); u != nil {
		return u
	}
	d := decoder{text: c.body, names: c.names.snapshot()}
	if c.large() {
		d.text = unpacked(c.body)
	}
	object, _ := d.value().(map[string]any)
	u := &unstructured.Unstructured{Object: object}
	c.names.heat(c, u)
	return u
}

// Unpacked is an object as people know it. It must not be changed.
func Unpacked(a metav1.ObjectMetaAccessor) metav1.Object {
	if r, ok := a.(*Record); ok {
		return r.Full()
	}
	return a.GetObjectMeta()
}

// warm is how many objects of a cluster are kept decoded: the ones that were
// changed or read last. Large objects are always kept compressed: decoded, an object with
// long lists takes twenty times its bytes.
const (
	warm    = 128
	maxWarm = 16 << 10 // bytes at rest
)

// large reports whether c is compressed.
func (c *Record) large() bool { return c.body[0] == tagPacked }

// encoders and packers are used again, since each takes more than a small object.
var (
	encoders = sync.Pool{New: func() any { return new(encoder) }}
	packers  = sync.Pool{New: func() any {
		w, err := flate.NewWriter(nil, flate.BestSpeed)
		if err != nil {
			panic(err) // the level is one of the package's
		}
		return w
	}}
	unpackers = sync.Pool{New: func() any { return flate.NewReader(nil) }}
)

// packed is the body of a large object, compressed.
func packed(data []byte) string {
	out := bytes.NewBuffer(binary.AppendUvarint([]byte{tagPacked}, uint64(len(data))))
	w := packers.Get().(*flate.Writer)
	defer packers.Put(w)
	w.Reset(out)
	_, _ = w.Write(data) // a buffer takes all
	_ = w.Close()
	return out.String()
}

// unpacked is what was compressed.
func unpacked(body string) string {
	d := decoder{text: body[1:]}
	size := int(d.number()) //nolint:gosec // of a body that was in memory
	r := unpackers.Get().(io.ReadCloser)
	defer unpackers.Put(r)
	_ = r.(flate.Resetter).Reset(strings.NewReader(d.text), nil)
	var out strings.Builder
	out.Grow(size)
	_, _ = io.CopyN(&out, r, int64(size)) // as it was written
	return out.String()
}

// A dictionary is the field names that the records of an API server have in
// common, and those objects that are decoded.
type dictionary struct {
	mu   sync.RWMutex
	ids  map[string]uint64
	list []string // only ever appended to

	warmMu sync.Mutex
	warm   [warm]*Record
	next   int
}

// maxNames and maxName bound what a cluster with odd field names can take.
const (
	maxNames = 8192
	maxName  = 128
)

func (d *dictionary) snapshot() []string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.list
}

// id is the number of a name, from 1; 0 if it has none.
func (d *dictionary) id(name string) uint64 {
	d.mu.RLock()
	id, ok := d.ids[name]
	d.mu.RUnlock()
	if ok || len(name) > maxName {
		return id
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if id := d.ids[name]; id != 0 || len(d.list) >= maxNames {
		return id
	}
	if d.ids == nil {
		d.ids = map[string]uint64{}
	}
	d.list = append(d.list, name)
	d.ids[name] = uint64(len(d.list))
	return uint64(len(d.list))
}

// heat keeps u as the decoded form of c, in place of another one's, unless it is large.
func (d *dictionary) heat(c *Record, u *unstructured.Unstructured) {
	if c.large() {
		return
	}
	d.warmMu.Lock()
	defer d.warmMu.Unlock()
	if c.hot.Swap(u) != nil {
		return
	}
	if before := d.warm[d.next]; before != nil {
		before.hot.Store(nil)
	}
	d.warm[d.next] = c
	d.next = (d.next + 1) % warm
}

// record returns the record of u, false if it has none.
func (d *dictionary) record(u *unstructured.Unstructured) (*Record, bool) {
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	e.names, e.data, e.ok = d, e.data[:0], true
	e.value(u.Object)
	if !e.ok {
		return nil, false
	}
	body := string(e.data)
	if len(e.data) > maxWarm {
		body = packed(e.data)
	}
	status, _ := u.Object["status"].(map[string]any)
	return &Record{
		name: cache.MetaObjectToName(u), uid: u.GetUID(), version: u.GetResourceVersion(),
		Digest: Digest(status), body: body, names: d,
	}, true
}

// Digest is a hash of the parts of a status that tell how an object fares: its
// phase and the conditions' statuses.
func Digest(status map[string]any) uint32 {
	h := fnv.New32a()
	write := func(v any) {
		if s, ok := v.(string); ok {
			_, _ = h.Write(append([]byte(s), 0))
		}
	}
	write(status["phase"])
	conditions, _ := status["conditions"].([]any)
	for _, c := range conditions {
		m, _ := c.(map[string]any)
		write(m["type"])
		write(m["status"])
	}
	return h.Sum32()
}

// Kinds of values in the body of a record.
const (
	tagNil byte = iota
	tagFalse
	tagTrue
	tagInt
	tagFloat
	tagString
	tagMap
	tagList
	tagPacked // of a whole body
)

// An encoder writes JSON values.
type encoder struct {
	names *dictionary
	data  []byte
	ok    bool
}

func (e *encoder) value(v any) {
	switch v := v.(type) {
	case nil:
		e.data = append(e.data, tagNil)
	case bool:
		tag := tagFalse
		if v {
			tag = tagTrue
		}
		e.data = append(e.data, tag)
	case int64:
		e.data = binary.AppendVarint(append(e.data, tagInt), v)
	case float64:
		e.data = binary.BigEndian.AppendUint64(append(e.data, tagFloat), math.Float64bits(v))
	case string:
		e.data = append(e.data, tagString)
		e.text(v)
	case []any:
		e.data = binary.AppendUvarint(append(e.data, tagList), uint64(len(v)))
		for _, item := range v {
			e.value(item)
		}
	case map[string]any:
		e.object(v)
	default:
		e.ok = false
	}
}

func (e *encoder) object(m map[string]any) {
	e.data = binary.AppendUvarint(append(e.data, tagMap), uint64(len(m)))
	for k, v := range m {
		id := e.names.id(k)
		e.data = binary.AppendUvarint(e.data, id)
		if id == 0 {
			e.text(k)
		}
		e.value(v)
	}
}

func (e *encoder) text(s string) {
	e.data = append(binary.AppendUvarint(e.data, uint64(len(s))), s...)
}

// A decoder reads what an encoder wrote.
type decoder struct {
	text  string
	names []string
}

func (d *decoder) value() any {
	switch d.byte() {
	case tagFalse:
		return false
	case tagTrue:
		return true
	case tagInt:
		n := d.number()
		return int64(n>>1) ^ -int64(n&1) //nolint:gosec // zigzag, as binary.AppendVarint has it
	case tagFloat:
		bits := binary.BigEndian.Uint64([]byte(d.take(8)))
		return math.Float64frombits(bits)
	case tagString:
		return d.take(d.number())
	case tagList:
		out := make([]any, d.number())
		for i := range out {
			out[i] = d.value()
		}
		return out
	case tagMap:
		return d.object()
	default:
		return nil
	}
}

func (d *decoder) object() map[string]any {
	n := d.number()
	out := make(map[string]any, n)
	for range n {
		var key string
		if id := d.number(); id > 0 {
			key = d.names[id-1]
		} else {
			key = d.take(d.number())
		}
		out[key] = d.value()
	}
	return out
}

func (d *decoder) byte() byte {
	b := d.text[0]
	d.text = d.text[1:]
	return b
}

func (d *decoder) take(n uint64) string {
	s := d.text[:n]
	d.text = d.text[n:]
	return s
}

func (d *decoder) number() uint64 {
	var n uint64
	for shift := 0; ; shift += 7 {
		b := d.byte()
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return n
		}
	}
}
