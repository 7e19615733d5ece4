// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/bind/internal/behind"
	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// ofAppCluster is what to do about an App Cluster that does not do as asked.
func ofAppCluster(err error) string {
	switch {
	case fates.Is(err, fates.Forbidden, fates.Terminating):
		return "An administrator of this cluster can look, or give you the rights."
	case fates.Is(err, fates.Unauthorized):
		return "Log in to this cluster again: its API server does not accept the credential of the kubeconfig."
	case fates.IsDistrusted(err):
		return "The CA of the kubeconfig is not that of this server: look whether --kubeconfig and --context name the App Cluster."
	case errors.Is(err, cluster.ErrAppCluster):
		return "Look whether it runs, and whether --kubeconfig and --context name it."
	default:
		return "Name the App Cluster with --kubeconfig or --context."
	}
}

// ofControlPlane is what to do about a Control Plane Cluster that does not do as asked.
func ofControlPlane(server string, err error, found *v1alpha1.ClusterBinding) string {
	switch {
	case fates.IsDistrusted(err):
		return "The CA of the kubeconfig is not that of the server: run kubectl bind repair, which writes the right one. If it stays so, do not go on: another server answers at " + server + "."
	case fates.Is(err, fates.Unauthorized):
		return "Run kubectl bind repair: it writes a new token. If the platform refuses the login, ask its operators."
	case fates.Is(err, fates.Unreachable, fates.Failing, fates.Broken, fates.Unknown, fates.Overloaded):
		return "Look whether " + server + " can be reached from here; the konnector needs it too, and goes on by itself when it answers. The operators of the platform know whether it is down."
	case err == nil && found != nil && found.DeletionTimestamp != nil:
		return "If it goes on, delete the objects here that need not stay, or have the platform's operators set spec.deletionPolicy of the ClusterBinding. Once the tenant is gone, kubectl bind repair asks for a new one. If it is not meant, ask the operators."
	case err == nil && found == nil:
		return "Run kubectl bind repair to become a tenant anew, or remove what is left here: kubectl bind unbind --help"
	default:
		return "Ask the operators of the platform, or run kubectl bind repair."
	}
}

// ofHeartbeat is what to do about a heartbeat that does not come, or that another konnector than
// the platform waits for has left.
func ofHeartbeat(unheard bool, wrong string) string {
	switch {
	case unheard && strings.Contains(wrong, "kubectl "):
		return "" // it says itself what to run
	case unheard:
		return "Another konnector wrote the heartbeats so far. If that is Klutch's, this one takes its place with: kubectl bind konnector upgrade --image IMAGE --force-conflicts. If this one was just installed, look again in a minute."
	default:
		return "The konnector does not write it: look at the other checks, and at the clocks."
	}
}

// ofBinding is what to do about a binding that is not ready, by the first of its reasons for
// which there is something to do.
func ofBinding(b *v1alpha1.APIServiceBinding) string {
	if cluster.IsGone(b.Status.Conditions) {
		return "Ask the platform's operators why, and what has become of the instances, of which the objects here say how they were last. Run kubectl bind repair: it asks for a new tenant."
	}
	for _, c := range b.Status.Conditions {
		if c.Status == metav1.ConditionTrue || c.Type == v1alpha1.ConditionReady {
			continue
		}
		if c.Reason == v1alpha1.ReasonBreakingChangeHeld {
			return "Objects here go on under the schema from before. The platform's operators can bring that back, or set spec.breakingChanges of the template to Allow: then the owner of this binding is asked."
		}
		if c.Type == v1alpha1.ConditionProviderInSync || c.Type == v1alpha1.ConditionOffered {
			return "Show the message to the platform's operators, for whom kubectl bind doctor says what to do there."
		}
		switch c.Reason {
		case v1alpha1.ReasonDeletionsHeld:
			return "Look at the objects first: kubectl bind status " + b.Name + " -o wide. If all of their deletions are meant, run: " + behind.ReleaseCommand(b)
		case v1alpha1.ReasonForeignCustomResourceDefinition:
			return fmt.Sprintf("This cluster has a CRD %s that the konnector did not make. %s", b.Name, cluster.ForeignCRD(b.Name))
		case v1alpha1.ReasonAPIServiceExportNotFound:
			return "The platform does not offer this API any more; the objects here are left as they are. Ask its operators, or give the binding up: kubectl bind unbind " + b.Name + ". Objects whose deletion waits for the platform then go with --force."
		case v1alpha1.ReasonKubeconfigSecretNotFound:
			return cluster.Repair(nil) + ": it writes a new kubeconfig Secret. The objects here wait meanwhile."
		case v1alpha1.ReasonKubeconfigSecretInvalid:
			return "What to do depends on the Secret: see the check secret. The objects here wait meanwhile."
		case v1alpha1.ReasonControlPlaneUnauthorized, v1alpha1.ReasonTokenRevoked:
			return "Run kubectl bind repair: it writes a new kubeconfig Secret. The objects here wait meanwhile."
		case v1alpha1.ReasonControlPlaneUnreachable:
			return "It goes on by itself when the Control Plane Cluster answers as it should: see the check control-plane."
		case v1alpha1.ReasonMissingRights:
			return "Run kubectl bind repair: it writes the rights anew."
		case v1alpha1.ReasonRefusedClaim, v1alpha1.ReasonUnsupportedClaim, v1alpha1.ReasonNewClaims:
			return "Run: kubectl bind claims " + b.Name
		}
	}
	return described(b)
}

// ofClaims is what to do about permission claims that are not kept, or not answered.
func ofClaims(b *v1alpha1.APIServiceBinding, reason string) string {
	switch reason {
	case v1alpha1.ReasonRefusedClaim, v1alpha1.ReasonUnsupportedClaim, v1alpha1.ReasonNewClaims:
		return "Run: kubectl bind claims " + b.Name
	case v1alpha1.ReasonMissingRights:
		return "Run kubectl bind repair: it writes the rights anew."
	}
	return described(b)
}

// ofTemplate is what to do about a template whose API tenants cannot have.
func ofTemplate(t *v1alpha1.APIServiceExportTemplate, reason, message string) string {
	api := t.Spec.APIServiceSelector.String()
	remove := fmt.Sprintf("kubectl -n %s delete apiserviceexporttemplate %s", t.Namespace, t.Name)
	switch {
	case reason == v1alpha1.ReasonMissingRights && strings.Contains(message, "kubectl apply -k"): // of the backend's own, which are shipped
		return "Run the command of the message in a checkout of the backend's version. The template is looked at again within five minutes, and at once when it is changed."
	case reason == v1alpha1.ReasonSchemaMissing:
		return fmt.Sprintf("Look for its CRD: kubectl get crd %s. If the service is gone: %s", api, remove)
	case reason == v1alpha1.ReasonNotEstablished:
		return "What keeps it: kubectl describe crd " + api
	case reason == v1alpha1.ReasonMissingRights:
		return "Give the backend the rule of the message. What a template needs, with its rules: kubectl bind offer " + api
	case reason == v1alpha1.ReasonShadowed:
		return "Keep one of the two. To give this one up: " + remove
	default:
		return fmt.Sprintf("Change the template: kubectl -n %s edit apiserviceexporttemplate %s", t.Namespace, t.Name)
	}
}

func described(b *v1alpha1.APIServiceBinding) string {
	return fmt.Sprintf("What its conditions and Events say: kubectl -n %s describe apiservicebinding %s", cmp.Or(b.Namespace, v1alpha1.Namespace), b.Name)
}

// ofObjects is what to do about objects that are not in step: for each of their reasons, that of
// the object which is so for longest first.
func ofObjects(b *v1alpha1.APIServiceBinding, found []behind.Object) string {
	all := "All of them: kubectl bind status " + b.Name + " -o wide"
	if cluster.IsGone(b.Status.Conditions) {
		return "The tenant is gone, and with it perhaps what these stand for: see the check binding. " + all
	}
	var said, lines []string
	for _, o := range found {
		if strings.Contains(o.Message, klutchsync.OtherCluster) {
			return "If the cluster that was here before is gone for good, run: kubectl bind recover " + b.Name
		}
		line := ofReason[klutchsync.Reason(o.Reason)]
		switch {
		case isRefusedReturn(o):
			line += " " + ofRefusedReturn
		case isUnreadTarget(o):
			line = ofUnreadTarget
		case isOfEarlier(o):
			line = ofEarlier
		case isRefusedDeletion(o):
			line = fmt.Sprintf(ofRefusedDeletion, b.Name)
		}
		if line != "" && !slices.Contains(said, line) {
			said = append(said, line)
			lines = append(lines, o.Reason+": "+filled(line, b.Name, o))
		}
	}
	if len(lines) == 1 {
		_, lines[0], _ = strings.Cut(lines[0], ": ")
	}
	return strings.Join(append(lines, all), " ")
}

// unique are the texts, each where it comes first.
func unique(texts []string) (once []string) {
	for _, text := range texts {
		if !slices.Contains(once, text) {
			once = append(once, text)
		}
	}
	return once
}

// filled is a line of ofReason for an object of a binding.
func filled(line, binding string, o behind.Object) string {
	place := ""
	if o.Namespace != "" {
		place = "-n " + o.Namespace + " "
	}
	return strings.NewReplacer("-n NAMESPACE ", place, "RESOURCE", binding, "NAME", o.Name).Replace(line)
}

// isUnreadTarget reports whether the platform's API server does not permit a read of an object's target.
func isUnreadTarget(o behind.Object) bool {
	return klutchsync.Reason(o.Reason) == klutchsync.ReasonDenied && strings.HasPrefix(strings.TrimPrefix(o.Message, o.Reason+": "), "read target ")
}

// isRefusedReturn reports whether an object is lost, and its platform does not take it again.
func isRefusedReturn(o behind.Object) bool {
	return klutchsync.Reason(o.Reason) == klutchsync.ReasonVanished && strings.Contains(o.Message, klutchsync.RefusedReturn)
}

// isOfEarlier reports whether the target's name has an instance of an earlier object of the same name.
func isOfEarlier(o behind.Object) bool {
	return klutchsync.Reason(o.Reason) == klutchsync.ReasonConflict && strings.Contains(o.Message, klutchsync.EarlierObject)
}

// ofEarlier is what to do about that.
const ofEarlier = "The instance on the platform is that of an earlier object of this name, with its data. Give the object another name to have a new one beside it. Have the platform's operators remove the earlier one only if its data are not needed."

// isRefusedDeletion reports whether an object is being deleted, and its platform does not take that.
func isRefusedDeletion(o behind.Object) bool {
	refused := []klutchsync.Reason{klutchsync.ReasonRefused, klutchsync.ReasonForbidden, klutchsync.ReasonMissing, klutchsync.ReasonUnavailable}
	return slices.Contains(refused, klutchsync.Reason(o.Reason)) && strings.Contains(o.Message, klutchsync.BeingDeleted)
}

// ofRefusedDeletion is what to do about that.
const ofRefusedDeletion = "Show the message to the platform's operators: the object goes by itself once what it names is mended there. If the platform has no such API any more, or is gone for good, kubectl bind unbind %s --force does not wait for it."

// ofUnreadTarget is what to do about that: a namespace that is gone is one without rights.
const ofUnreadTarget = "The namespace that the message names, or the rights in it, may be gone on the platform: show the message to its operators."

// ofRefusedReturn is what to do beside it where the platform does not take a lost object again.
const ofRefusedReturn = "It is made anew by itself once what the message names is mended: change the object, or show the message to the platform's operators where a quota, a policy or a right is in the way, or the namespace that it names may be gone on the platform."

// ofReason is what to do about an object that is not in step for a reason.
var ofReason = map[klutchsync.Reason]string{
	klutchsync.ReasonRefused:     "Change the object to what the message asks for; it is sent again at once.",
	klutchsync.ReasonForbidden:   "A quota, a policy or a right of the platform is in the way, or the namespace that the message names may be gone on the platform: change the object to what is allowed, or show the message to the platform's operators. It is sent again by itself.",
	klutchsync.ReasonMissing:     "The platform's operators have to bring back what is missing there; the object is sent again by itself.",
	klutchsync.ReasonUnavailable: "An API server or a webhook of the platform fails: its operators can look. The object is sent again by itself.",
	klutchsync.ReasonConflict:    "The name is taken on the platform: choose another name for the object, or have the platform's operators remove the other one.",
	klutchsync.ReasonTerminating: "Show the finalizers that the message names to the platform's operators.",
	klutchsync.ReasonRelated:     "Rename or remove the object of this cluster that the message names, if it is not needed.",
	klutchsync.ReasonFields:      "The platform's version of this API lacks the fields that the message names: remove them, or ask its operators for a newer version.",
	klutchsync.ReasonStale:       "This cluster was restored from a backup: look at the object as a whole, then change it; it goes up as it stands.",
	klutchsync.ReasonVanished:    "What it held is gone with it: ask the platform's operators for a backup before you use what is made anew.",
	klutchsync.ReasonLost:        "What it held is gone with it: ask the platform's operators. To have it made anew, empty, run: kubectl -n NAMESPACE annotate RESOURCE NAME " + klutchsync.TargetAnnotation + "-",
	klutchsync.ReasonHeld:        "If the deletions are meant, release them as the message says. If not, leave the objects as they are: that keeps the instances and their credentials for as long as it takes. Kubernetes takes no deletion back, so move the data to objects of other names, and release these then.",
	klutchsync.ReasonDenied:      "Rights are missing: run kubectl bind repair, which writes them anew, or show the message to the operators of the cluster that it names.",
	klutchsync.ReasonStatus:      "A policy, a webhook or the schema of this cluster is in the way of the status that the message names.",
	klutchsync.ReasonMapper:      "Show the message to the platform's operators: their namespaces contradict each other.",
	klutchsync.ReasonDrifted:     "The platform's operators have changed it, and the binding leaves it so: agree on the fields that the message names.",
	klutchsync.ReasonContested:   "Agree with the one that the message names who sets these fields. If it names the finalizer: have the automation in this cluster leave klutch.anynines.com/ alone.",
	klutchsync.ReasonShared:      "Another konnector has bound the same objects and writes their status: stop one of both.",
}
