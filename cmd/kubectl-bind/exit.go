// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Exit codes. They are an interface: scripts branch on them.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitNotReady    = 3 // not ready, or timed out
	exitDenied      = 4 // authentication or permission
	exitConsent     = 5 // a permission claim needs an answer
	exitConflict    = 6
	exitInterrupted = 130
)

// errQuiet ends a command with exitNotReady, all said.
var errQuiet = errors.New("not ready")

// end says what went wrong and what to do next, and returns the exit code.
func (p *plugin) end(ctx context.Context, command string, err error) int {
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errQuiet):
		return exitNotReady
	case errors.Is(context.Cause(ctx), context.Canceled):
		p.say("interrupted")
		if len(p.changed) > 0 {
			p.say(p.changes() + "Run the command again to go on.")
		}
		return exitInterrupted
	}
	code, hint := p.verdict(err)
	if code == exitUsage {
		hint = fmt.Sprintf("See '%s --help'.", command)
	}
	for line := range strings.Lines(err.Error()) {
		p.say("error: " + strings.TrimSuffix(line, "\n"))
	}
	if hint != "" {
		p.say(hint)
	}
	return code
}

// verdict is the table of what can go wrong: the first row that fits decides.
func (p *plugin) verdict(err error) (code int, hint string) {
	consent, _ := errors.AsType[*bind.ConsentError](err)
	refused, _ := errors.AsType[*auth.Error](err)
	request, _ := errors.AsType[*bind.RequestError](err)
	refusedField, _ := errors.AsType[*kubeconfig.FieldError](err)
	for _, row := range []struct {
		fits bool
		code int
		hint string
	}{
		{isUsage(err) || errors.Is(err, bind.ErrScheme), exitUsage, ""},
		{consent != nil, exitConsent, p.consentHint(consent)},
		{errors.Is(err, bind.ErrConflict), exitConflict, p.changes() + "Remove the object that is in the way, or bind through the provider that it belongs to: kubectl bind status"},
		{errors.Is(err, bind.ErrDeleting), exitConflict, "What it waits for: kubectl bind status NAME -o wide. If the platform is gone for good, or has no such API any more, give the binding up without it: kubectl bind unbind NAME --force"},
		{errors.Is(err, bind.ErrInUse), exitConflict, "Delete the objects first, and wait until they are gone: what stands for them in the Control Plane Cluster goes with them."},
		{errors.Is(err, bind.ErrBound), exitConflict, "Give them up first, each with: kubectl bind unbind NAME"},
		{errors.Is(err, errOtherImage), exitConflict, "To go on, say so: kubectl bind konnector upgrade --image IMAGE"},
		{errors.Is(err, bind.ErrNoKonnector), exitError, "Install one with: kubectl bind konnector install --image IMAGE"},
		{fates.Is(err, fates.Contested), exitConflict, p.changes() + "Change it where that program has it from, or take the fields over with --force-conflicts."},
		{errors.Is(err, bind.ErrNotRevoked), exitError, "The binding in the App Cluster is removed all the same. Ask the operators of the platform to remove the tenant: they delete the ClusterBinding in its namespace or, where Klutch's own backend runs, that namespace."},
		{errors.Is(err, bind.ErrNotRotated), exitError, "It replaces one that is a minute old. Run the command again in a minute; if it stays so, have the operators of the platform delete the Secret klutch-binder in the tenant's namespace."},
		{errors.Is(err, bind.ErrNotFound), exitError, "List the bindings with: kubectl bind status"},
		{request != nil && (request.Waits || isUnable(request.Reason)), exitNotReady, "Nothing is bound yet. Show this to the platform's operators, for whom kubectl bind doctor says what to do there, and run the command again when it is mended."},
		{request != nil && request.Reason == v1alpha1.ReasonNotOffered, exitError, "What is on offer to you is listed by: kubectl bind services URL"},
		{errors.Is(err, bind.ErrKonnectorNotReady), exitNotReady, "Look why: kubectl -n " + v1alpha1.Namespace + " get pods"},
		{errors.Is(err, bind.ErrNotReady), exitNotReady, "What is in the way: kubectl bind doctor"},
		{refused != nil && refused.Code == "expired_token", exitNotReady, "The code was not used in time. Run the command again: it prints a new one. --timeout makes none last longer."},
		{isAbandoned(err), exitNotReady, "The login was not finished in time. Run the command again; --timeout gives more time."},
		{fates.Is(err, fates.Forbidden), exitDenied, "This needs an administrator's rights in the App Cluster; see: kubectl auth can-i --list"},
		{fates.Is(err, fates.Unauthorized), exitDenied, "Log in to the cluster that refused, then run the command again. At a platform: kubectl bind URL"},
		{strings.Contains(err.Error(), "http://localhost:8080/"), exitError, "Name the App Cluster with --kubeconfig or KUBECONFIG."}, // what client-go takes for want of one
		{errors.Is(err, bind.ErrAppCluster) && fates.IsDistrusted(err), exitError, "The CA of the kubeconfig is not that of this server: look whether --kubeconfig and --context name the App Cluster."},
		{errors.Is(err, bind.ErrAppCluster) && fates.Is(err, fates.Unreachable, fates.Failing, fates.Overloaded, fates.Unknown), exitNotReady, "The App Cluster does not answer as it should: look whether --kubeconfig and --context name it, and whether it runs."},
		{errors.Is(err, context.DeadlineExceeded), exitNotReady, "Give it more time with --timeout, or look at: kubectl bind status"},
		{errors.Is(err, bind.ErrNoOffer), exitError, "Its page shows it: kubectl bind URL, and sign out there to bind nothing."},
		{errors.Is(err, bind.ErrNoDevice), exitError, "Run the command without --device on a machine with a browser, or bind with a credential from the platform team: kubectl bind apiservice --help"},
		{isCancelled(refused), exitDenied, "The login was cancelled, or refused where people sign in; the platform was not asked yet. Run the command again."},
		{refused != nil && refused.Code == "access_denied", exitDenied, "Ask the operator of the platform whether you may bind this service."},
		{refused != nil && refused.Code == "invalid_scope", exitError, "Leave --service out to choose from the services on offer, or list them: kubectl bind services URL"},
		{refused != nil && refused.Code == "temporarily_unavailable", exitError, "Try again later; if it stays so, tell the operator of the platform."},
		{refused != nil, exitError, "Run the command again; a login can be used once, and soon."},
		{request != nil && request.Reason == v1alpha1.ReasonNotAuthorized && strings.Contains(request.Message, "kubectl bind http"), exitDenied, ""}, // it says itself what to run
		{request != nil && request.Reason == v1alpha1.ReasonNotAuthorized, exitDenied, "Ask the operator of the platform whether you may bind this service."},
		{fates.IsDistrusted(err), exitError, "If you trust it, name the certificate authority of the backend: --backend-certificate-authority FILE"},
		{errors.Is(err, bind.ErrNotBackend), exitError, "Give the URL of a Klutch backend as the platform team names it."},
		{refusedField != nil, exitError, "A kubeconfig of a platform holds a server, a CA, a namespace and a token. Ask the operator of the platform for one, or log in: kubectl bind URL"},
		{errors.Is(err, errNoCluster) || errors.Is(err, bind.ErrNoServer), exitError, "Name the App Cluster with --kubeconfig or KUBECONFIG."},
		{strings.HasPrefix(err.Error(), "context \""), exitError, "What there is, is listed by: kubectl config get-contexts"},
		{strings.Contains(err.Error(), "no such host"), exitError, "Check the name in the URL."},
		{strings.Contains(err.Error(), "connection refused"), exitError, "Nothing listens there. Check the URL, and that the server runs."},
	} {
		if row.fits {
			return row.code, row.hint
		}
	}
	return exitError, ""
}

// isUnable: the platform offers a service that it cannot hand out as it is.
func isUnable(reason string) bool {
	return slices.Contains([]string{v1alpha1.ReasonMissingRights, v1alpha1.ReasonCRDNotFound, v1alpha1.ReasonCRDInvalid}, reason)
}

// isAbandoned: no browser or person came back in time.
func isAbandoned(err error) bool {
	waited := strings.Contains(err.Error(), "wait for the browser") || strings.Contains(err.Error(), "wait for the person")
	return errors.Is(err, context.DeadlineExceeded) && waited
}

// isCancelled: the person, or the issuer, ended the login before the platform decided anything.
func isCancelled(refused *auth.Error) bool {
	return refused != nil && refused.Code == "access_denied" &&
		(strings.HasPrefix(refused.Description, "The issuer ") || refused.Description == "the person signed out")
}

// consentHint names the flags that answer.
func (p *plugin) consentHint(e *bind.ConsentError) string {
	if e == nil {
		return ""
	}
	hint := p.changes()
	if len(e.Unanswered) > 0 {
		hint += "To accept, add: " + acceptFlags(e.Unanswered) + " (or --yes for all on Secrets and ConfigMaps; --reject-claim refuses) "
	}
	if len(e.Refused) > 0 {
		hint += "The service does not work without what was refused: leave --reject-claim out and add " + acceptFlags(e.Refused) + ", or give a service up that is bound: kubectl bind unbind NAME"
	}
	return strings.TrimSpace(hint)
}

// acceptFlags are the flags that accept claims.
func acceptFlags(claims []bind.Claim) string {
	var flags []string
	for _, c := range claims {
		flags = append(flags, fmt.Sprintf("--accept-claim %s/%s", c.Service, c.GroupResource))
	}
	return strings.Join(flags, " ")
}
