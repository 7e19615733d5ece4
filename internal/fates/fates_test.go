// SPDX-License-Identifier: Apache-2.0

package fates

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func status(code int32, reason metav1.StatusReason, causes ...metav1.CauseType) error {
	s := metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: "no", Details: &metav1.StatusDetails{}}
	for _, c := range causes {
		s.Details.Causes = append(s.Details.Causes, metav1.StatusCause{Type: c})
	}
	return &apierrors.StatusError{ErrStatus: s}
}

func said(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

// Every reason that apimachinery defines has a kind of its own, whatever the code says.
func TestReasons(t *testing.T) {
	want := map[metav1.StatusReason]Kind{
		metav1.StatusReasonUnknown:               Unreachable,
		metav1.StatusReasonUnauthorized:          Unauthorized,
		metav1.StatusReasonForbidden:             Forbidden,
		metav1.StatusReasonNotFound:              Absent,
		metav1.StatusReasonAlreadyExists:         Exists,
		metav1.StatusReasonConflict:              Conflict,
		metav1.StatusReasonGone:                  Expired,
		metav1.StatusReasonInvalid:               Invalid,
		metav1.StatusReasonServerTimeout:         Failing,
		metav1.StatusReasonStoreReadError:        Damaged,
		metav1.StatusReasonTimeout:               Failing,
		metav1.StatusReasonTooManyRequests:       Overloaded,
		metav1.StatusReasonBadRequest:            Malformed,
		metav1.StatusReasonMethodNotAllowed:      NotAllowed,
		metav1.StatusReasonNotAcceptable:         NotAcceptable,
		metav1.StatusReasonRequestEntityTooLarge: TooLarge,
		metav1.StatusReasonUnsupportedMediaType:  Unsupported,
		metav1.StatusReasonInternalError:         Broken,
		metav1.StatusReasonExpired:               Expired,
		metav1.StatusReasonServiceUnavailable:    Failing,
	}
	for _, reason := range reasons(t) {
		kind, ok := want[reason]
		if !ok {
			t.Errorf("reason %q is in no row", reason)
		}
		if got := Of(status(0, reason)); got != kind {
			t.Errorf("reason %q is of kind %d, want %d", reason, got, kind)
		}
	}
}

// reasons are those in the source of apimachinery, so that a new one is noticed.
func reasons(t *testing.T) (out []metav1.StatusReason) {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "k8s.io/apimachinery/pkg/apis/meta/v1").Output()
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(dir)), "types.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
			if kind, ok := v.Type.(*ast.Ident); ok && kind.Name == "StatusReason" {
				text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, metav1.StatusReason(text))
			}
		}
		return true
	})
	if len(out) < 20 {
		t.Fatalf("found %d reasons", len(out))
	}
	return out
}

// What proxies answer has a code and no reason; client-go makes errors of both kinds.
func TestCodes(t *testing.T) {
	for code, want := range map[int]Kind{
		301: Unreachable, 400: Malformed, 401: Unauthorized, 402: Broken, 403: Forbidden, 404: Absent, 405: NotAllowed, 406: NotAcceptable, 407: Broken, 408: Failing,
		409: Conflict, 410: Expired, 411: Broken, 412: Broken, 413: TooLarge, 415: Unsupported, 418: Broken, 421: Broken, 422: Invalid,
		423: Broken, 425: Failing, 428: Broken, 429: Overloaded, 431: Broken, 451: Broken,
		500: Broken, 501: Broken, 502: Failing, 503: Failing, 504: Failing, 507: Broken, 511: Broken, 599: Broken,
	} {
		if got := Of(status(int32(code), "")); got != want {
			t.Errorf("code %d is of kind %d, want %d", code, got, want)
		}
		if got := Of(status(int32(code), "OfAnotherProgram")); got != want {
			t.Errorf("code %d with an unknown reason is of kind %d, want %d", code, got, want)
		}
		generic := apierrors.NewGenericServerResponse(code, http.MethodGet, schema.GroupResource{Resource: "widgets"}, "a", "", 0, true)
		if code == http.StatusNotFound {
			want = Unserved
		}
		if got := Of(generic); got != want {
			t.Errorf("client-go's error for code %d is of kind %d, want %d", code, got, want)
		}
	}
}

func TestKinds(t *testing.T) {
	invalid := func(value any, path ...string) error {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Widget"}, "a", field.ErrorList{field.Invalid(field.NewPath(path[0], path[1:]...), value, "field is immutable")})
	}
	for name, c := range map[string]struct {
		err  error
		want Kind
	}{
		"nothing":             {nil, None},
		"cancelled":           {fmt.Errorf("get: %w", context.Canceled), Ended},
		"deadline":            {context.DeadlineExceeded, Unreachable},
		"of a program":        {errors.New("no such key"), Unknown},
		"cut short":           {fmt.Errorf("read: %w", io.ErrUnexpectedEOF), Unreachable},
		"webhook is down":     {said(500, metav1.StatusReasonInternalError, `Internal error occurred: failed calling webhook "a.b": rpc error: code = Unavailable`), Broken},
		"webhook, 503":        {said(503, metav1.StatusReasonServiceUnavailable, `admission webhook "a.b" denied the request: later`), Broken},
		"no leader":           {said(500, "", "etcdserver: no leader"), Failing},
		"no connection":       {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, Unreachable},
		"wrapped":             {fmt.Errorf("write: %w", status(403, metav1.StatusReasonForbidden)), Forbidden},
		"no namespace":        {status(404, metav1.StatusReasonNotFound), Absent},
		"no resource":         {status(404, metav1.StatusReasonNotFound, metav1.CauseTypeUnexpectedServerResponse), Unserved},
		"namespace goes":      {status(403, metav1.StatusReasonForbidden, corev1.NamespaceTerminatingCause), Terminating},
		"field conflict":      {status(409, metav1.StatusReasonConflict, metav1.CauseTypeFieldManagerConflict), Contested},
		"another object":      {invalid("x", "metadata", "uid"), Replaced},
		"UID as a value":      {invalid("metadata.uid", "spec", "fieldPath"), Invalid},
		"version ahead":       {status(504, metav1.StatusReasonTimeout, metav1.CauseTypeResourceVersionTooLarge), Ahead},
		"no such field":       {apierrors.NewInternalError(errors.New(".spec.x: field not declared in schema")), Undeclared},
		"of another type":     {apierrors.NewInternalError(errors.New("failed to create typed patch object (shop/a): .spec.size: expected string, got 3")), Invalid},
		"too large for etcd":  {said(500, "", "etcdserver: request is too large"), TooLarge},
		"too large for gRPC":  {said(500, "", "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2097692 vs. 2097152)"), TooLarge},
		"webhook, 404":        {said(404, metav1.StatusReasonNotFound, `admission webhook "a.b" denied the request: NotFound`), Forbidden},
		"webhook, 429":        {said(429, metav1.StatusReasonTooManyRequests, `admission webhook "a.b" denied the request: later`), Overloaded},
		"webhook, 408":        {said(408, "", `admission webhook "a.b" denied the request: later`), Forbidden},
		"webhook, UID":        {said(422, metav1.StatusReasonInvalid, `admission webhook "a.b" denied the request: metadata.uid`), Invalid},
		"policy, 401":         {said(401, metav1.StatusReasonUnauthorized, `widgets "a" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`), Forbidden},
		"look again":          {fmt.Errorf("status: %w", ErrAgain), Superseded},
		"again, for a reason": {fmt.Errorf("%w: %w", ErrAgain, status(422, metav1.StatusReasonInvalid)), Invalid},
		"terminal":            {fmt.Errorf("bad: %w", ErrTerminal), Terminal},
		"another's reason":    {status(403, "AccessDenied"), Forbidden},
		"a reason says more":  {status(500, metav1.StatusReasonServerTimeout), Failing},
	} {
		if got := Of(c.err); got != c.want {
			t.Errorf("%s: kind %d, want %d", name, got, c.want)
		}
	}
}

// What is silent has the kind of an error, and no text of it.
func TestSilent(t *testing.T) {
	if Silent(nil) != nil {
		t.Error("no error has become one")
	}
	for kind, err := range map[Kind]error{
		Invalid: status(422, metav1.StatusReasonInvalid), Forbidden: status(403, metav1.StatusReasonForbidden), Unknown: errors.New("s3cret"),
	} {
		silent := Silent(err)
		if got := Of(fmt.Errorf("copy: %w", silent)); got != kind || strings.Contains(silent.Error(), "s3cret") {
			t.Errorf("%v: kind %d, want %d: %v", err, got, kind, silent)
		}
	}
	if asked := Asked(Silent(apierrors.NewTooManyRequests("s3cret", 60))); asked != time.Minute {
		t.Errorf("it asks for a pause of %v", asked)
	}
}

// What is withheld says the kind and who denies, and nothing else of what an API server says.
func TestWithheld(t *testing.T) {
	quoting := func(code int32, reason metav1.StatusReason, said string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason, Message: said}}
	}
	for want, err := range map[string]error{
		"the API server refuses it":                                         quoting(422, metav1.StatusReasonInvalid, `Secret "a" is invalid: data: Invalid value: "s3cret"`),
		"the API server does not permit it (admission webhook \"w.a.org\")": quoting(403, metav1.StatusReasonForbidden, `admission webhook "w.a.org" denied the request: s3cret`),
		"the API server refuses it (ValidatingAdmissionPolicy 'mine')":      quoting(422, metav1.StatusReasonInvalid, `secrets "a" is forbidden: ValidatingAdmissionPolicy 'mine' with binding 'b' denied request: ValidatingAdmissionPolicy 's3cret' denied`),
		"the API server does not permit it":                                 quoting(403, metav1.StatusReasonForbidden, `it is 's3cret': ValidatingAdmissionPolicy 's3cret' with binding`),
		"connection refused":                                                errors.New("connection refused"),
	} {
		if got := Withheld(fmt.Errorf("write: %w", err)); !strings.HasSuffix(got.Error(), want) || Of(got) != Of(err) || strings.Contains(got.Error(), "s3cret") {
			t.Errorf("%v (kind %d), want %s (kind %d)", got, Of(got), want, Of(err))
		}
	}
	if Withheld(nil) != nil {
		t.Error("no error has become one")
	}
}

// What only the texts of API servers say; that they say it: TestRealTexts.
func TestTexts(t *testing.T) {
	denied := &apierrors.StatusError{ErrStatus: metav1.Status{Code: 422, Reason: metav1.StatusReasonInvalid}}
	denied.ErrStatus.Message = `rolebindings "a" is forbidden: ValidatingAdmissionPolicy 'mine' with binding 'b' denied request: no`
	if !DeniedBy(fmt.Errorf("create: %w", denied), "mine") || DeniedBy(denied, "min") || DeniedBy(denied, "mine'") || DeniedBy(nil, "mine") {
		t.Error("who denied a request is not known")
	}
	denied.ErrStatus.Message = `rolebindings "a" is forbidden: ValidatingAdmissionPolicy 'mine' denied request: failed to configure policy: failed to find resource referenced by paramKind`
	if !DeniedBy(denied, "mine") {
		t.Error("a policy without the kind of its parameters fails closed, which is not known")
	}
	for said, want := range map[string]struct {
		why    string
		denial Denial
	}{
		`rolebindings "a" is forbidden: ValidatingAdmissionPolicy 'mine' with binding 'b' denied request: no`: {"no", Denied},
		denied.ErrStatus.Message: {"failed to configure policy: failed to find resource referenced by paramKind", ParamKindUnknown},
		`rolebindings "a" is forbidden: ValidatingAdmissionPolicy 'mine' with binding 'b' denied request: no params found for policy binding with ` + "`Deny`" + ` parameterNotFoundAction`: {"no params found for policy binding with `Deny` parameterNotFoundAction", ParamsMissing},
		`rolebindings "a" is forbidden: no`: {`rolebindings "a" is forbidden: no`, NotDenied},
	} {
		err := fmt.Errorf("create: %w", &apierrors.StatusError{ErrStatus: metav1.Status{Code: 403, Reason: metav1.StatusReasonForbidden, Message: said}})
		if why, denial := WhyDenied(err); why != want.why || denial != want.denial {
			t.Errorf("%s: %q, %d", said, why, denial)
		}
		if other := Reworded(err, "no"); Of(other) != Forbidden || other.Error() != "no" || !errors.Is(other, err) {
			t.Errorf("reworded it is of kind %d: %v", Of(other), other)
		}
	}
	granting := apierrors.NewForbidden(schema.GroupResource{Resource: "roles"}, "a", errors.New("user \"b\" is attempting to grant RBAC permissions not currently held"))
	if !Escalates(fmt.Errorf("create: %w", granting)) || Escalates(status(403, metav1.StatusReasonForbidden)) || Escalates(errors.New(granting.Error())) {
		t.Error("an escalation is not known, or another error is one")
	}
	for said, want := range map[string]bool{
		`secrets "a" is forbidden: User "b" cannot get resource "secrets" in API group "" in the namespace "c"`:                                    true,
		`secrets is forbidden: User "say \"b\"" cannot list resource "secrets/status" in API group "" at the cluster scope: Azure does not know b`: true,
		`forbidden: User "b" cannot get path "/metrics"`:                                                                                           true,
		granting.Error(): true,
		`secrets "a" is forbidden: ValidatingAdmissionPolicy 'mine' with binding 'b' denied request: x is forbidden: User "b" cannot get resource "c"`: false,
		`admission webhook "w" denied the request: secrets is forbidden: User "b" cannot get resource "secrets"`:                                       false,
		`secrets "a" is forbidden: exceeded quota: q, requested: secrets=1, used: secrets=1, limited: secrets=1`:                                       false,
	} {
		err := &apierrors.StatusError{ErrStatus: metav1.Status{Code: 403, Reason: metav1.StatusReasonForbidden, Message: said}}
		if got := LacksRight(fmt.Errorf("read: %w", err)); got != want || LacksRight(errors.New(said)) || LacksRight(nil) {
			t.Errorf("%s: a right is lacking: %t", said, got)
		}
	}
	held := &apierrors.StatusError{ErrStatus: metav1.Status{Code: 409, Reason: metav1.StatusReasonConflict, Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
		{Type: metav1.CauseTypeFieldManagerConflict, Message: `conflict with "b" using v1`, Field: ".spec.x"},
		{Type: metav1.CauseTypeFieldManagerConflict, Message: `conflict with "a"`, Field: ".spec.x"},
		{Type: metav1.CauseTypeFieldManagerConflict, Message: `conflict with "a"`, Field: ".spec.x"},
		{Type: metav1.CauseTypeFieldManagerConflict, Message: "conflict", Field: ".spec.y"},
		{Type: metav1.CauseTypeFieldValueInvalid, Message: `conflict with "c"`, Field: ".spec.z"},
	}}}}
	if got, want := strings.Join(Holders(fmt.Errorf("apply: %w", held)), ", "), "a (.spec.x), b (.spec.x), someone else (.spec.y)"; got != want {
		t.Errorf("holders %s, want %s", got, want)
	}
}

// Each kind has a fate, and pauses grow up to a bound.
func TestTable(t *testing.T) {
	for k := range Kinds {
		r := k.row()
		if (r.longest == 0) != (k == None) {
			t.Errorf("kind %d has no row", k)
		}
		if r.longest > 0 && (k.Pause(1) != first || k.Pause(1000) != r.longest || k.Pause(3) != 4*first) {
			t.Errorf("kind %d has pauses %v, %v, %v", k, k.Pause(1), k.Pause(3), k.Pause(1000))
		}
		if refused := k.Word() == Refuses || k.Word() == DoesNotPermit; refused != (r.fate == Refused) {
			t.Errorf("of kind %d, which has fate %d, people are told that an API server %s it", k, r.fate, k.Word())
		}
		if r.fate == Later && r.longest > time.Minute && k != Broken && k != Unknown {
			t.Errorf("kind %d is tried again after %v only", k, r.longest)
		}
	}
}

func BenchmarkOf(b *testing.B) {
	err := fmt.Errorf("write target: %w", status(409, metav1.StatusReasonConflict))
	for b.Loop() {
		Of(err)
	}
}

func ExampleOf() {
	err := apierrors.NewNotFound(schema.GroupResource{Resource: "widgets"}, "a")
	fmt.Println(Of(err) == Absent, Of(err).Fate() == Waits)
	// Output: true true
}
