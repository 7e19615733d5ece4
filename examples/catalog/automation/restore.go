// SPDX-License-Identifier: Apache-2.0

package automation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

// restoresAnnotation of an instance's state names the Restores that were carried
// out on it by their UIDs. It is written together with the contents, so that none
// is ever carried out twice.
const restoresAnnotation = "anynines.com/restores"

// Restore writes a snapshot's contents into an instance, once.
func (w *world) restore(ctx context.Context, c claim) (managed, error) {
	if c.state() == Completed {
		done, _, _ := unstructured.NestedMap(c.Object, "status", "managed")
		return done, nil
	}
	backup, snapshot, err := w.snapshotOf(ctx, c)
	if err != nil {
		return nil, err
	}
	state, err := w.stateOf(ctx, c, cmp.Or(c.text("spec", "instanceRef"), backup.text("spec", "instanceRef")))
	if err != nil {
		return nil, err
	}
	if from, to := snapshot.Data[serviceKey], state.Data[serviceKey]; from != to {
		return nil, refuse(ServiceMismatch, "a backup of %s cannot be restored into %s", from, to)
	}
	server, err := w.serverOf(ctx, typeOf(c), state)
	if err == nil && server != nil {
		err = troubled(server.Load(ctx, snapshot.Data[backupIDKey], string(c.GetUID())))
	}
	if err != nil {
		return nil, err
	}
	if err := w.writeContents(ctx, c, state, snapshot.Data[contentsKey]); err != nil {
		return nil, err
	}
	return managed{
		"state":     string(Completed),
		backupIDKey: snapshot.Data[backupIDKey], idKey: state.Data[idKey],
	}, nil
}

// snapshotOf reads the backup that c names and its snapshot.
func (w *world) snapshotOf(ctx context.Context, c claim) (claim, *corev1.ConfigMap, error) {
	name := c.text("spec", "backupRef")
	backup, found, err := w.sibling(ctx, c, "Backup", name)
	if err != nil {
		return claim{}, nil, err
	}
	if !found {
		return claim{}, nil, refuse(BackupNotFound, "there is no Backup %s in this namespace", name)
	}
	snapshot, found, err := find(ctx, w.configMaps(backup), backup)
	if _, taken := errors.AsType[*hold](err); taken || err == nil && !found {
		return claim{}, nil, wait(BackupNotReady, "Backup %s is not completed yet", name)
	}
	return backup, snapshot, err
}

func (w *world) writeContents(ctx context.Context, c claim, state *corev1.ConfigMap, contents string) error {
	done := strings.Fields(state.Annotations[restoresAnnotation])
	if slices.Contains(done, string(c.GetUID())) {
		return nil
	}
	kept, err := w.stillThere(c.GetNamespace(), done)
	if err != nil {
		return err
	}
	kept = append(kept, string(c.GetUID()))
	metav1.SetMetaDataAnnotation(&state.ObjectMeta, restoresAnnotation, strings.Join(kept, " "))
	state.Data[contentsKey] = contents
	if _, err := w.core.ConfigMaps(c.GetNamespace()).Update(ctx, state, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("restore contents: %w", err)
	}
	return nil
}

// stillThere returns those of the UIDs that Restores of namespace have, so that the
// list does not grow with Restores that were deleted.
func (w *world) stillThere(namespace string, uids []string) ([]string, error) {
	restores, err := w.claims["restores"].GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, obj := range restores {
		if o, ok := obj.(metav1.Object); ok && slices.Contains(uids, string(o.GetUID())) {
			out = append(out, string(o.GetUID()))
		}
	}
	return out, nil
}
