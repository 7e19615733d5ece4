// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/crdcompat"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// takeOver decides whether the provider's schema may replace the one that is there. If
// not, the condition says why, and the objects stay in step under what is there.
func (p *pass) takeOver(live, wanted *unstructured.Unstructured) (why v1alpha1.Condition, err error) {
	here, err := crdSpec(live)
	if err != nil {
		return why, err
	}
	theirs, err := crdSpec(wanted)
	if err != nil {
		return why, err
	}
	hash, err := changeHash(live, wanted)
	if err != nil {
		return why, err
	}
	changes := crdcompat.Only(crdcompat.Compare(here, theirs), crdcompat.Change.NeedsConsent)
	wait := p.untilNextSchema(time.Now())
	switch {
	case len(changes) > 0 && p.binding.Annotations[v1alpha1.AcceptSchemaAnnotation] != hash:
		why = warned(v1alpha1.ConditionSchemaInSync, v1alpha1.ReasonSchemaChangeHeld, heldSchema(p.key, hash, changes))
	case wait > 0:
		p.again = wait
		why = v1alpha1.False(v1alpha1.ConditionSchemaInSync, v1alpha1.SeverityInfo, v1alpha1.ReasonSchemaChangeWaits,
			fmt.Sprintf("The provider's newest schema waits: the CRD is changed every %s at most. Objects are synced under the schema that is here.", p.opts.SchemaInterval))
	default:
		return why, nil
	}
	wanted.Object["spec"] = live.Object["spec"]
	under := *p.export
	under.Spec.APIServiceExportCRDSpec = *here
	p.export = &under
	return why, nil
}

func heldSchema(binding cache.ObjectName, hash string, changes []crdcompat.Change) string {
	namespace := ""
	if binding.Namespace != "" {
		namespace = " -n " + binding.Namespace
	}
	return fmt.Sprintf("The provider's new schema is not taken over; objects are synced under the one that is here. To take it over: kubectl annotate apiservicebinding%s %s --overwrite %s=%s. It would change what is valid or kept here: %s.",
		namespace, binding.Name, v1alpha1.AcceptSchemaAnnotation, hash, crdcompat.List(changes))
}

// crdSpec is that of a CRD as an export would have it.
func crdSpec(crd *unstructured.Unstructured) (*v1alpha1.APIServiceExportCRDSpec, error) {
	data, err := json.Marshal(crd.Object["spec"])
	if err != nil {
		return nil, fmt.Errorf("encode CRD %s: %w", crd.GetName(), err)
	}
	spec := &v1alpha1.APIServiceExportCRDSpec{}
	if err := json.Unmarshal(data, spec); err != nil {
		return nil, fmt.Errorf("decode CRD %s: %w", crd.GetName(), err)
	}
	return spec, nil
}

// changeHash names a change of schema in the consent to it. The same schema can take away
// something else later, and whoever makes two of them must not have them share a name.
func changeHash(live, wanted *unstructured.Unstructured) (string, error) {
	data, err := json.Marshal([]any{live.Object["spec"], wanted.Object["spec"]}) // keys are in order
	if err != nil {
		return "", fmt.Errorf("encode CRD %s: %w", wanted.GetName(), err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// untilNextSchema is how long the CRD of a binding has to stay as it is.
func (p *pass) untilNextSchema(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, ok := p.schemas[p.key]
	if !ok {
		return 0
	}
	return p.opts.SchemaInterval - now.Sub(last)
}

func (p *pass) noteSchema(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.schemas[p.key] = now
}

// dropNames leaves out of wanted the short names, categories and the singular name by
// which people here already reach something else, and returns them. Live may be nil.
func (p *pass) dropNames(live, wanted *unstructured.Unstructured) ([]string, error) {
	served, err := p.app.names.read(p.app.kube.Discovery(), time.Now())
	if err != nil {
		return nil, err
	}
	dropped, err := dropSingular(served, live, wanted)
	if err != nil {
		return nil, err
	}
	for _, field := range []string{"shortNames", "categories"} {
		var had []string
		if live != nil {
			had, _, _ = unstructured.NestedStringSlice(live.Object, "spec", "names", field)
		}
		all, _, _ := unstructured.NestedStringSlice(wanted.Object, "spec", "names", field)
		taken := takenNames(served, schema.ParseGroupResource(wanted.GetName()), had)
		free := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return taken[name] })
		dropped = append(dropped, slices.DeleteFunc(all, func(name string) bool { return !taken[name] })...)
		if err := unstructured.SetNestedStringSlice(wanted.Object, free, "spec", "names", field); err != nil {
			return nil, err
		}
		if len(free) == 0 {
			unstructured.RemoveNestedField(wanted.Object, "spec", "names", field)
		}
	}
	return dropped, nil
}

// dropSingular puts the plural in the place of a singular name that is taken: without one
// the API server would make it of the kind.
func dropSingular(served []*metav1.APIResourceList, live, wanted *unstructured.Unstructured) ([]string, error) {
	singular, had := singularOf(wanted), ""
	if live != nil {
		had = singularOf(live)
	}
	own := schema.ParseGroupResource(wanted.GetName())
	if singular == own.Resource || !takenNames(served, own, []string{had})[singular] {
		return nil, nil
	}
	return []string{singular}, unstructured.SetNestedField(wanted.Object, own.Resource, "spec", "names", "singular")
}

func singularOf(crd *unstructured.Unstructured) string {
	singular, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "singular")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	return cmp.Or(singular, strings.ToLower(kind))
}

// served are the resources of a cluster as of the last minute.
type served struct {
	mu    sync.Mutex
	at    time.Time
	lists []*metav1.APIResourceList
}

// read does not miss what the API server knows because another API server behind it is
// away.
func (s *served) read(d discovery.ServerResourcesInterface, now time.Time) ([]*metav1.APIResourceList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.at.IsZero() && now.Sub(s.at) < time.Minute {
		return s.lists, nil
	}
	_, lists, err := d.ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, fmt.Errorf("names that the App Cluster serves: %w", err)
	}
	s.at, s.lists = now, lists
	return lists, nil
}

// takenNames are those by which something other than own is reached: names, kinds and
// short names of resources, and the categories of Kubernetes itself. What own has
// already is not given up to another custom resource that came later.
func takenNames(served []*metav1.APIResourceList, own schema.GroupResource, had []string) map[string]bool {
	taken := map[string]bool{}
	for _, list := range served {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			if gv.Group == own.Group && (r.Name == own.Resource || strings.HasPrefix(r.Name, own.Resource+"/")) {
				continue
			}
			names := append([]string{r.Name, r.SingularName, strings.ToLower(r.Kind)}, r.ShortNames...)
			if ofKubernetes(gv.Group) {
				names = append(names, r.Categories...)
			}
			for _, name := range names {
				taken[name] = taken[name] || ofKubernetes(gv.Group) || !slices.Contains(had, name)
			}
		}
	}
	return taken
}

// ofKubernetes tells the groups of Kubernetes itself from those of custom resources.
func ofKubernetes(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}
