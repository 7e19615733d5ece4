// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/exporttemplate"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// judgedIn is how soon a backend that works has looked at a new template.
const judgedIn = 30 * time.Second

// A template is one as ours, with the group in which it is.
type template struct {
	v1alpha1.APIServiceExportTemplate
	group string
}

// isForeign reports whether the template is one that the legacy backend reads: no backend writes on
// it what becomes of it.
func (t *template) isForeign() bool { return t.group != v1alpha1.GroupVersion.Group }

// templatesIn are the templates of a cluster as the backend reads them, by API, of each the one
// that offers it first.
func templatesIn(ctx context.Context, app *cluster.App) (all []template, err error) {
	list, err := exporttemplate.List(ctx, app)
	for n := range list {
		u := &list[n]
		if exporttemplate.IsForeign(u) { // of its fields only the selector counts here
			u.Object["spec"] = map[string]any{"apiServiceSelector": exporttemplate.Selector(u), "clusterScopedIsolation": string(v1alpha1.IsolationPrefixed)}
			delete(u.Object, "status")
		}
		read, err := cluster.Decode[v1alpha1.APIServiceExportTemplate](u)
		if err != nil {
			return nil, err
		}
		all = append(all, template{*read, u.GroupVersionKind().Group})
	}
	return all, err
}

// checkTemplates looks at what a Control Plane Cluster offers, where this cluster is one and
// the person may read it, and reports whether it offers anything.
func (d *doctor) checkTemplates(ctx context.Context) bool {
	all, err := templatesIn(ctx, d.app)
	if fates.Is(err, fates.Forbidden) {
		return false
	}
	if err != nil {
		d.note("template", "", cluster.Explain(err), "", "An administrator of this cluster can look.")
		return false
	}
	for _, t := range all {
		d.checkTemplate(&t)
	}
	return len(all) > 0
}

// checkTemplate goes by what the backend says of a template, and tells one that no backend
// has looked at.
func (d *doctor) checkTemplate(t *template) {
	about := t.Namespace + "/" + t.Name
	ready := v1alpha1.FindCondition(t.Status.Conditions, v1alpha1.ConditionReady)
	switch age := d.age(t.CreationTimestamp.Time); {
	case t.isForeign():
		d.note("template", about+" of "+t.group, "", "it offers "+t.Spec.APIServiceSelector.String()+"; of templates of this group no backend says whether tenants can have their API", "")
	case ready != nil && ready.Status == metav1.ConditionTrue:
		d.note("template", about, "", "tenants can have it", "")
	case ready != nil:
		d.note("template", about, ready.Reason+": "+ready.Message, "", ofTemplate(&t.APIServiceExportTemplate, ready.Reason, ready.Message))
	case age > judgedIn:
		d.note("template", about, fmt.Sprintf("no backend has looked at it for %s", age), "",
			"Look whether the backend runs: kubectl get deployments --all-namespaces -l app=klutch-backend")
	default:
		d.note("template", about, "", "it is new", "")
	}
}
