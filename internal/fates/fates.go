// SPDX-License-Identifier: Apache-2.0

// Package fates says what kind of error an API server, or the way to it, gave, and
// what becomes of what met it.
//
//	switch fates.Of(err) {
//	case fates.Conflict, fates.Replaced: // look again
//	case fates.Absent:                   // there is no such object
//	}
//
// Apimachinery asks one question at a time (IsForbidden, IsNotFound, …). Chains of such
// questions forget some kinds, and differ from one caller to the next; so there is one
// [Kind] for each error, and one table of what follows from it. Three kinds that
// apimachinery does not tell apart decide between life and death of an object here: a
// resource that is not served ([Unserved]) says nothing about its objects ([Absent]); an
// object that was replaced ([Replaced]) is no invalid one ([Invalid]); a namespace on its
// way out ([Terminating]) is no lack of rights ([Forbidden]).
//
// The fate says when people are told, and the caller knows where. A request about one object of a Sync: a
// message on its source, as an annotation, an Event and a call of a hook. A list or a watch of a Sync: its
// Status, which the konnector turns into the condition InformersSynced of the binding. Any other request of
// the konnector: the condition of the binding whose step it belongs to. A request of the backend: a condition of
// the tenant's APIServiceExport, APIServiceExportRequest or ClusterBinding; at a login, the page and the terminal. The log
// has a line when the kind of the error changes, and then one an hour.
//
// Of looks at the reason, and at the code where the reason is none that Kubernetes
// defines, as proxies have it. It costs as much as one of apimachinery's questions.
package fates

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Fate is what becomes of a request that met an error.
type Fate int

// Fates.
const (
	Done    Fate = iota // nothing more is to be done
	Again               // what it was about is looked at again, at once
	Later               // it is repeated after a growing pause
	Refused             // it gets the same answer until a schema, a right or its content changes
	Waits               // an event tells when it can succeed
)

// A Word is what people are told of a request that met an error and was not done soon.
type Word int

// Words. What an API server refuses and does not permit is told at once, all else once it lasts.
const (
	CannotTake    Word = iota // the API server, or the way to it, does not work
	Lacks                     // what the request needs is not there, or going
	Refuses                   // what is asked for is wrong
	DoesNotPermit             // a right is missing, or admission says no
)

// String says it in a sentence of an API server and what it was asked for.
func (w Word) String() string {
	return [...]string{CannotTake: "cannot take", Lacks: "lacks what it needs for", Refuses: "refuses", DoesNotPermit: "does not permit"}[w]
}

// A Kind is what an error says.
type Kind int

// Kinds.
const (
	None          Kind = iota // no error
	Ended                     // the caller's context was cancelled
	Superseded                // the state was not the one that was seen: ErrAgain alone
	Terminal                  // a retry cannot cure it: ErrTerminal
	Unreachable               // no answer, or none of an API server
	Failing                   // the API server cannot answer now
	Broken                    // this request meets a failure: of a webhook, of the API server, or of a proxy
	Unknown                   // an error of a program, and none of the network
	Damaged                   // the API server cannot read what it has stored
	Overloaded                // the API server has too much to do
	Unauthorized              // the credential is not valid
	Forbidden                 // a right is missing, or admission says no
	Terminating               // the namespace is being deleted
	Absent                    // there is no object of the name
	Unserved                  // there is no resource of the name
	Exists                    // there is an object of the name already
	Conflict                  // the object has another version, or another UID
	Contested                 // others hold the fields
	Replaced                  // there is another object than was meant
	Expired                   // the version is too old to list or watch from
	Ahead                     // the version is one that the API server has not reached
	Invalid                   // the object does not fit its schema
	Undeclared                // an applied field is not in the schema
	Malformed                 // the request makes no sense
	TooLarge                  // the request has too many bytes
	NotAllowed                // the resource does not know the verb
	NotAcceptable             // the answer has no form that was asked for
	Unsupported               // the request has no form that is understood
	Kinds                     // their number
)

// Longest pauses. What meets no API server, or one that is not ready, is tried again soon, since users
// wait for the end of an outage, and one request every few seconds costs little; what an API server
// refuses, what fails while it works, and what waits for an event, has time.
const (
	soon = 2500 * time.Millisecond
	slow = 30 * time.Second
	rare = 10 * time.Minute
)

// Of many that an API server refuses, each asks as rarely as makes one request in Share in all. Up
// to Few are not many, since most causes are of one object: each of these is asked soon again.
const (
	Share = 2 * time.Second
	Few   = 20
)

// A row of the table.
type row struct {
	fate    Fate
	word    Word
	longest time.Duration // of the pauses, where it is tried again
}

func (k Kind) row() row {
	return [Kinds]row{
		None:          {Done, CannotTake, 0},
		Ended:         {Done, CannotTake, soon},
		Superseded:    {Again, CannotTake, soon},
		Exists:        {Again, CannotTake, rare},
		Conflict:      {Again, CannotTake, slow},
		Replaced:      {Again, CannotTake, slow},
		Expired:       {Again, CannotTake, slow},
		Ahead:         {Again, CannotTake, soon},
		Unreachable:   {Later, CannotTake, soon},
		Failing:       {Later, CannotTake, soon},
		Broken:        {Later, CannotTake, rare},
		Unknown:       {Later, CannotTake, rare},
		Damaged:       {Later, CannotTake, slow},
		Overloaded:    {Later, CannotTake, slow},
		Unauthorized:  {Later, CannotTake, slow},
		Unserved:      {Later, Lacks, slow},
		Terminal:      {Refused, Refuses, rare},
		Forbidden:     {Refused, DoesNotPermit, rare},
		Contested:     {Refused, Refuses, rare},
		Invalid:       {Refused, Refuses, rare},
		Undeclared:    {Refused, Refuses, rare},
		Malformed:     {Refused, Refuses, rare},
		TooLarge:      {Refused, Refuses, rare},
		NotAllowed:    {Refused, Refuses, rare},
		NotAcceptable: {Refused, Refuses, rare},
		Unsupported:   {Refused, Refuses, rare},
		Terminating:   {Waits, Lacks, rare},
		Absent:        {Waits, Lacks, rare},
	}[k]
}

// Fate is what becomes of a request that met an error of kind k.
func (k Kind) Fate() Fate { return k.row().fate }

// Word is what people are told of it.
func (k Kind) Word() Word { return k.row().word }

// Pause is how long to wait after so many failures of kind k in a row, from 1. It is never much
// longer than the failures have lasted, so that what is over soon is found out soon.
func (k Kind) Pause(failures int) time.Duration {
	return Pause(failures, k.Longest())
}

// Longest is the longest of these pauses.
func (k Kind) Longest() time.Duration { return k.row().longest }

// Pause is one of pauses that double up to a longest one.
func Pause(failures int, longest time.Duration) time.Duration {
	return min(first<<min(failures-1, 14), longest)
}

const first = 50 * time.Millisecond

// Asked is the pause that an API server asks for in its answer err, such as a webhook that denies
// for a while; 0 if it asks for none, ten minutes at most.
func Asked(err error) time.Duration {
	if quiet, is := errors.AsType[silent](err); is {
		return quiet.asked
	}
	s, _ := statusOf(err)
	if s.Details == nil {
		return 0
	}
	return min(time.Duration(s.Details.RetryAfterSeconds)*time.Second, rare)
}

// Is reports whether err is of one of the kinds.
func Is(err error, kinds ...Kind) bool { return slices.Contains(kinds, Of(err)) }

// IsRefused reports whether what err was the answer to gets the same answer until a schema, a
// right or its content changes: people have to be told.
func IsRefused(err error) bool { return Of(err).Fate() == Refused }

// ErrAgain marks an error that says: the state was not the one that was seen, look again.
// Where it wraps what an API server said, the kind is that of the answer.
var ErrAgain = errors.New("look again")

// ErrTerminal marks an error that a retry cannot cure.
var ErrTerminal = errors.New("to ask again does not help")

// A silent error has a kind and no text of the error that it stands for.
type silent struct {
	said  string
	kind  Kind
	asked time.Duration
	ofOne bool // see Refusals
}

// Error implements error.
func (s silent) Error() string { return s.said }

// Silent returns an error of the kind of err, which asks for the same pause, and does not say what err says: API servers
// repeat what they do not like, and it may be the content of a Secret. Of nil it is nil.
func Silent(err error) error {
	if err == nil {
		return nil
	}
	return silent{"refused", Of(err), Asked(err), ofOne(err)}
}

// ofOne reports whether err may be the answer to one request alone: a refusal, another state than was
// seen, or the word of a webhook, which chooses its code.
func ofOne(err error) bool {
	if quiet, is := errors.AsType[silent](err); is {
		return quiet.ofOne
	}
	said, _ := Message(err)
	fate := Of(err).Fate()
	return fate == Refused || fate == Again || fate == Waits || denied(said)
}

// Withheld is Silent of an API server's answer, and says what kind it is and which admission policy or
// webhook gave it; where no API server has answered, it is err.
func Withheld(err error) error {
	said, is := Message(err)
	if !is {
		return err
	}
	words := "the API server " + Of(err).Word().String() + " it"
	if who := denier.FindStringSubmatch(said); who != nil {
		words += " (" + who[1] + ")"
	}
	return silent{words, Of(err), Asked(err), ofOne(err)}
}

// denier is who denies a request: an API server writes the name before the words of that.
var denier = regexp.MustCompile(`^(?:[^']*: )?(admission webhook "[^"]*"|ValidatingAdmissionPolicy '[^']*') (?:with binding|denied)`)

// Of is the kind of err. A deadline that passed is a missing answer; callers that set one
// for themselves ask their context first.
func Of(err error) Kind {
	var answer apierrors.APIStatus
	var quiet silent
	switch {
	case err == nil:
		return None
	case errors.Is(err, ErrTerminal):
		return Terminal
	case errors.As(err, &answer):
		return ofStatus(answer.Status(), err)
	case errors.Is(err, ErrAgain):
		return Superseded
	case errors.Is(err, context.Canceled):
		return Ended
	case errors.As(err, &quiet):
		return quiet.kind
	case undeclared(err.Error()):
		return Undeclared
	case noAnswer(err):
		return Unreachable
	default:
		return Unknown
	}
}

// Message is what an API server says in its answer err; false if err is none.
func Message(err error) (said string, is bool) {
	answer, is := statusOf(err)
	return answer.Message, is
}

var manager = regexp.MustCompile(`conflict with "([^"]*)"`)

// Holders returns which field managers hold which fields, if err is an API server's answer
// that others hold what was to be applied. The text of a cause alone has the manager.
func Holders(err error) (holders []string) {
	s, _ := statusOf(err)
	if s.Details == nil {
		return nil
	}
	for _, c := range s.Details.Causes {
		if c.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		who := "someone else"
		if m := manager.FindStringSubmatch(c.Message); m != nil {
			who = m[1]
		}
		holders = append(holders, fmt.Sprintf("%s (%s)", who, c.Field))
	}
	slices.Sort(holders)
	return slices.Compact(holders)
}

// Escalates reports whether err is an API server's answer that we may not pass on rights
// that we have not. No reason and no cause of it says so, only the text.
func Escalates(err error) bool {
	return Is(err, Forbidden) && strings.Contains(err.Error(), "attempting to grant RBAC permissions not currently held")
}

// LacksRight reports whether err is an API server's answer that RBAC, or another authorizer, does not give
// the right to do that. Admission forbids too: policies, webhooks and quotas. The text alone tells.
func LacksRight(err error) bool {
	said, _ := Message(err)
	return Is(err, Forbidden) && !denied(said) && (unauthorized.MatchString(said) || Escalates(err))
}

var unauthorized = regexp.MustCompile(`forbidden: User "(?:[^"\\]|\\.)*" cannot [a-z]+ (?:resource|path) "`)

// DeniedBy reports whether err is an API server's answer that its ValidatingAdmissionPolicy
// of a name does not admit the request, be it that the kind of its parameters is not known
// yet, and it fails closed. The policy chooses the reason of the answer, so that the text
// alone names it.
func DeniedBy(err error, policy string) bool {
	said, is := Message(err)
	return is && strings.Contains(said, fmt.Sprintf("ValidatingAdmissionPolicy '%s' ", policy))
}

// Resource is the one that an API server's answer err is about; empty if that does not say.
func Resource(err error) string {
	if s, _ := statusOf(err); s.Details != nil {
		return s.Details.Kind
	}
	return ""
}

func statusOf(err error) (s metav1.Status, is bool) {
	var answer apierrors.APIStatus
	if is = errors.As(err, &answer); is {
		s = answer.Status()
	}
	return s, is
}

// ofStatus looks at what can be told from the causes and the text last.
func ofStatus(s metav1.Status, err error) Kind {
	has := func(cause metav1.CauseType) bool {
		return s.Details != nil && slices.ContainsFunc(s.Details.Causes, func(c metav1.StatusCause) bool { return c.Type == cause })
	}
	of := func(field string) bool {
		return s.Details != nil && slices.ContainsFunc(s.Details.Causes, func(c metav1.StatusCause) bool { return c.Field == field })
	}
	k := ofReason(s.Reason, s.Code)
	switch {
	case denied(s.Message):
		return ofDenial(k, s)
	case has(metav1.CauseTypeResourceVersionTooLarge):
		return Ahead
	case k == Forbidden && has(corev1.NamespaceTerminatingCause):
		return Terminating
	case k == Absent && has(metav1.CauseTypeUnexpectedServerResponse):
		return Unserved
	case k == Conflict && has(metav1.CauseTypeFieldManagerConflict):
		return Contested
	case k == Invalid && of("metadata.uid"):
		return Replaced
	case k == Broken:
		return ofFailure(err.Error())
	}
	return k
}

// denied reports whether an API server's answer is the word of an admission webhook or policy.
func denied(said string) bool {
	return strings.HasPrefix(said, `admission webhook "`) || strings.Contains(said, ": ValidatingAdmissionPolicy '") && strings.Contains(said, " denied request: ")
}

// ofDenial is the kind of a denial, whose author has chosen its code: it may say that the
// request has to wait, or what is wrong with it, and knows nothing of credentials, of what is
// there and of versions.
func ofDenial(k Kind, s metav1.Status) Kind {
	fails := s.Code >= http.StatusInternalServerError || ofReason(s.Reason, 0) != Unreachable
	switch {
	case (k == Failing || k == Broken) && fails: // the webhook is not ready, and the API server is
		return Broken
	case k == Overloaded, k.Fate() == Refused:
		return k
	}
	return Forbidden
}

// ofFailure is the kind of what an API server calls an error of its own: it may be one of the request,
// which its typed patches or its store do not take, or its store may not be ready.
func ofFailure(said string) Kind {
	switch {
	case undeclared(said):
		return Undeclared
	case strings.Contains(said, "failed to create typed patch object"):
		return Invalid
	case strings.Contains(said, "etcdserver: request is too large"), strings.Contains(said, "trying to send message larger than max"):
		return TooLarge
	case strings.Contains(said, "failed calling webhook"): // which may quote all of these
	case strings.Contains(said, "etcdserver: "), strings.Contains(said, "rpc error: code = "):
		return Failing
	}
	return Broken
}

// undeclared reports whether an API server says that an apply has a field that it does not
// know.
func undeclared(said string) bool { return strings.Contains(said, "field not declared in schema") }

func ofReason(reason metav1.StatusReason, code int32) Kind {
	switch reason {
	case metav1.StatusReasonUnauthorized:
		return Unauthorized
	case metav1.StatusReasonForbidden:
		return Forbidden
	case metav1.StatusReasonNotFound:
		return Absent
	case metav1.StatusReasonAlreadyExists:
		return Exists
	case metav1.StatusReasonConflict:
		return Conflict
	case metav1.StatusReasonGone, metav1.StatusReasonExpired:
		return Expired
	case metav1.StatusReasonInvalid:
		return Invalid
	case metav1.StatusReasonTooManyRequests:
		return Overloaded
	case metav1.StatusReasonBadRequest:
		return Malformed
	case metav1.StatusReasonMethodNotAllowed:
		return NotAllowed
	case metav1.StatusReasonNotAcceptable:
		return NotAcceptable
	case metav1.StatusReasonRequestEntityTooLarge:
		return TooLarge
	case metav1.StatusReasonUnsupportedMediaType:
		return Unsupported
	case metav1.StatusReasonStoreReadError:
		return Damaged
	case metav1.StatusReasonServiceUnavailable, metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout:
		return Failing
	case metav1.StatusReasonInternalError: // client-go calls each 5xx so that it does not know
		return OfCode(max(int(code), http.StatusInternalServerError))
	default:
		return OfCode(int(code))
	}
}

// OfCode is the kind of a refusal of which nothing is known but its HTTP status code.
func OfCode(code int) Kind {
	switch code {
	case http.StatusBadRequest:
		return Malformed
	case http.StatusUnauthorized:
		return Unauthorized
	case http.StatusForbidden:
		return Forbidden
	case http.StatusNotFound:
		return Absent
	case http.StatusMethodNotAllowed:
		return NotAllowed
	case http.StatusNotAcceptable:
		return NotAcceptable
	case http.StatusConflict:
		return Conflict
	case http.StatusGone:
		return Expired
	case http.StatusRequestEntityTooLarge:
		return TooLarge
	case http.StatusUnsupportedMediaType:
		return Unsupported
	case http.StatusUnprocessableEntity:
		return Invalid
	case http.StatusTooManyRequests:
		return Overloaded
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return Failing
	}
	if code < http.StatusBadRequest { // the way leads elsewhere
		return Unreachable
	}
	return Broken
}
