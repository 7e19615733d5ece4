// SPDX-License-Identifier: Apache-2.0

package watchstore

import (
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// NewDynamic returns a dynamic client whose watches read each event once. Client-go reads
// its JSON eight times: to find its end, its type, its kind and its content, and before
// three of these whether it is valid at all. So an event costs 0.37 times the CPU
// (BenchmarkWatch); a parser written for it would be no better. What is no ordinary object
// of an API group, such as an error, is left to client-go, and so is every other
// request.
func NewDynamic(config *rest.Config) (dynamic.Interface, error) {
	config = dynamic.ConfigFor(config)
	config.NegotiatedSerializer = negotiated{config.NegotiatedSerializer, &decoded{}}
	connections, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	config.GroupVersion, config.APIPath = nil, "/" // of no use: each request names its path
	client, err := rest.UnversionedRESTClientForConfigAndClient(config, connections)
	if err != nil {
		return nil, err
	}
	return dynamic.New(client), nil
}

// Negotiated is the serializers of a dynamic client, those of watches in JSON exchanged.
type negotiated struct {
	runtime.NegotiatedSerializer
	*decoded
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (n negotiated) SupportedMediaTypes() []runtime.SerializerInfo {
	infos := append([]runtime.SerializerInfo(nil), n.NegotiatedSerializer.SupportedMediaTypes()...)
	for i, info := range infos {
		if info.MediaType == runtime.ContentTypeJSON && info.StreamSerializer != nil {
			stream := *info.StreamSerializer
			stream.Serializer, stream.Framer = events{stream.Serializer, n.decoded}, framer{stream.Framer, n.decoded}
			infos[i].Serializer, infos[i].StreamSerializer = objects{info.Serializer, n.decoded}, &stream
		}
	}
	return infos
}

// A framer cuts a stream into JSON objects.
type framer struct {
	runtime.Framer
	*decoded
}

// NewFrameReader implements runtime.Framer.
func (f framer) NewFrameReader(r io.ReadCloser) io.ReadCloser {
	return &frames{ReadCloser: r, decoded: f.decoded}
}

// Frames is a stream of JSON objects, one for each Read. Large ones are left for the decoder of
// events, so that client-go keeps no buffer of the size of the largest for each watch.
type frames struct {
	io.ReadCloser
	*decoded
	data            []byte // read, and not returned yet
	seen            int    // of these
	depth           int
	inText, escaped bool
	left            []byte // of the frame that is being returned
	err             error
}

// maxFrame is the longest that client-go takes.
const maxFrame = 16 << 20

// Read implements io.Reader as package streaming wants it: a frame that does not fit comes
// in parts, all but the last with io.ErrShortBuffer.
func (f *frames) Read(p []byte) (int, error) {
	for len(f.left) == 0 {
		if frame := f.next(); frame != nil {
			f.left = frame
			break
		}
		if err := f.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, f.left)
	if f.left = f.left[n:]; len(f.left) > 0 {
		return n, io.ErrShortBuffer
	}
	return n, nil
}

// fill reads more of the stream.
func (f *frames) fill() error {
	switch {
	case f.err != nil:
		return f.err
	case f.seen > maxFrame:
		return streaming.ErrObjectTooLarge
	}
	if cap(f.data)-len(f.data) < 4096 {
		f.data = append(make([]byte, 0, max(2*len(f.data), 16<<10)), f.data...)
	}
	n, err := f.ReadCloser.Read(f.data[len(f.data):cap(f.data)])
	f.data, f.err = f.data[:len(f.data)+n], err
	return nil
}

// next is the next frame, nil if it is not complete.
func (f *frames) next() []byte {
	for i := f.seen; i < len(f.data); i++ {
		c := f.data[i]
		switch {
		case f.escaped:
			f.escaped = false
		case f.inText:
			f.inText, f.escaped = c != '"', c == '\\'
		case c == '"':
			f.inText = true
		case c == '{' || c == '[':
			f.depth++
		case c == '}' || c == ']':
			if f.depth--; f.depth <= 0 {
				frame := f.data[:i+1]
				f.data, f.seen, f.depth = f.data[i+1:], 0, 0
				if len(frame) > maxWarm {
					f.data = slices.Clone(f.data)
					return f.leave(frame)
				}
				return frame
			}
		}
	}
	f.seen = len(f.data)
	return nil
}

// Events decode the frames of a watch.
type events struct {
	runtime.Serializer
	*decoded
}

// Decode implements runtime.Decoder.
func (e events) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if frame, ok := e.take(data).([]byte); ok {
		data = frame
	}
	if event, ok := into.(*metav1.WatchEvent); ok {
		frame := map[string]any{}
		_ = utiljson.Unmarshal(data, &frame)
		kind, _ := frame["type"].(string)
		object, _ := frame["object"].(map[string]any)
		if ordinary(kind, object) {
			event.Type, event.Object.Raw = kind, e.leave(object)
			return event, &schema.GroupVersionKind{Version: "v1", Kind: "WatchEvent"}, nil
		}
	}
	return e.Serializer.Decode(data, defaults, into)
}

// ordinary reports whether an event is of an object for which client-go knows no type.
func ordinary(kind string, object map[string]any) bool {
	switch watch.EventType(kind) {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
	default:
		return false
	}
	version, _ := object["apiVersion"].(string)
	name, _ := object["kind"].(string)
	return name != "" && strings.Contains(version, "/")
}

// Objects decode the objects of events.
type objects struct {
	runtime.Serializer
	*decoded
}

// Decode implements runtime.Decoder.
func (o objects) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if object, _ := o.take(data).(map[string]any); object != nil {
		u := &unstructured.Unstructured{Object: object}
		kind := u.GroupVersionKind()
		return u, &kind, nil
	}
	return o.Serializer.Decode(data, defaults, into)
}

// Decoded is frames on the way to the decoder of events, and objects on the way from that to
// the one that is given them next. Between them client-go carries bytes alone.
type decoded struct {
	last    atomic.Uint64
	objects sync.Map
}

// leave returns bytes that stand for a frame or an object. No JSON begins with a zero.
func (d *decoded) leave(object any) []byte {
	id := d.last.Add(1)
	d.objects.Store(id, object)
	return binary.BigEndian.AppendUint64([]byte{0}, id)
}

func (d *decoded) take(data []byte) any {
	if len(data) != 9 || data[0] != 0 {
		return nil
	}
	object, _ := d.objects.LoadAndDelete(binary.BigEndian.Uint64(data[1:]))
	return object
}
