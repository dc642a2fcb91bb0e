{{/* Values that templates need, so that none of them names a line of its own instead. Not the schema's `required`: its message
has no remedy. Helm renders the deepest templates first, those of templates/tests, which include this. */}}
{{- define "streamtopology.complete" -}}
{{- range splitList " " "global image.repository image.pullPolicy sparkImage.repository disruptionBudget nodeLossSeconds crds.install replicas logLevel logFormat workers serviceAccount.create rbac.create rbac.aggregate probes.startup probes.liveness probes.readiness podDisruptionBudget.maxUnavailable podSecurityContext securityContext networkPolicy.enabled page.enabled tracing.endpoint tracing.headersSecret.key metrics.enabled metrics.interval metrics.rules metrics.dashboard" -}}
{{- $path := . -}}
{{- $at := $.Values -}}
{{- range splitList "." $path -}}
{{- if not (hasKey $at .) -}}
{{- fail (printf "the value %s is missing: `helm upgrade --reuse-values` takes an older chart's values without the new defaults: use --reset-then-reuse-values (Helm 3.14 or newer); a value that is set to null has to be left out" $path) -}}
{{- end -}}
{{- $at = index $at . -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "streamtopology.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "streamtopology.selector" -}}
app.kubernetes.io/name: streamtopology-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "streamtopology.labels" -}}
{{ include "streamtopology.selector" . }}
{{ include "streamtopology.furtherLabels" . }}
{{- end -}}

{{- define "streamtopology.furtherLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with merge (dict) (default dict .Values.commonLabels) (default dict .Values.global.commonLabels) }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels and annotations of an object: of the list's items the first is the root, the others are those that only it has. */}}
{{- define "streamtopology.marks" -}}
{{- $root := index . 0 -}}
labels:
  {{- merge (dict) (default dict (index . 1)) (include "streamtopology.labels" $root | fromYaml) | toYaml | nindent 2 }}
{{- with merge (dict) (default dict (index . 2)) (default dict $root.Values.commonAnnotations) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "streamtopology.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "streamtopology.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The name of an image: of the list's items the first is the chart's root, the second the image's values. */}}
{{- define "streamtopology.imageName" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $registry := default $root.Values.image.registry $root.Values.global.imageRegistry -}}
{{- $name := list $registry $image.repository | compact | join "/" -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default $root.Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The operator's pod and the pod of `helm test` are the same in this. */}}
{{- define "streamtopology.podSecurity" -}}
{{- $context := deepCopy .Values.podSecurityContext -}}
{{- with .Values.podUser -}}
{{- $context = merge $context (dict "runAsUser" (int64 .) "runAsGroup" (int64 .) "fsGroup" (int64 .)) -}}
{{- end -}}
{{ toYaml $context }}
{{- end -}}

{{- define "streamtopology.environment" -}}
- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
- {name: STREAMTOPOLOGY_RELEASE, value: {{ .Release.Name | quote }}}
- {name: STREAMTOPOLOGY_WATCH_NAMESPACES, value: {{ join "," .Values.watchNamespaces | quote }}}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "streamtopology.placement" -}}
{{- $secrets := default list .Values.imagePullSecrets -}}
{{- range .Values.global.imagePullSecrets -}}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) -}}
{{- end -}}
{{- with uniq $secrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with merge (dict) (default dict .Values.nodeSelector) (default dict .Values.global.nodeSelector) }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with default .Values.global.priorityClassName .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* An object of files/ with the labels and annotations of the chart: of the list's items the first is the root, the second the object. */}}
{{- define "streamtopology.labelled" -}}
{{- $object := index . 1 -}}
{{- $marks := include "streamtopology.marks" (list (index . 0) dict $object.metadata.annotations) | fromYaml -}}
{{- $_ := mergeOverwrite $object.metadata $marks -}}
{{ toYaml $object }}
{{- end -}}

{{- define "streamtopology.podUser" -}}
{{- with .Values.podUser }}{{ int64 . }}{{ end -}}
{{- end -}}

{{- define "streamtopology.monitored" -}}
{{- if and .Values.metrics.enabled (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1") -}}true{{- end -}}
{{- end -}}

{{/* Refuses a second release in a namespace, which has one Lease, and one that would serve the namespaces of another. It looks only where its user installs for the whole
cluster anyway: others may not read Deployments everywhere. `helm template` sees none. */}}
{{- define "streamtopology.alone" -}}
{{- range (lookup "apps/v1" "Deployment" .Release.Namespace "").items -}}
{{- $labels := default dict .metadata.labels -}}
{{- $theirs := default "" (index $labels "app.kubernetes.io/instance") -}}
{{- if and (eq (default "" (index $labels "app.kubernetes.io/name")) "streamtopology-operator") (ne $theirs $.Release.Name) -}}
{{- fail (printf "the release %s of the operator is in namespace %s already, and a namespace has one: change that one (helm upgrade %s), or install this one in a namespace of its own, with other watchNamespaces" $theirs $.Release.Namespace $theirs) -}}
{{- end -}}
{{- end -}}
{{- if or .Values.crds.install (not .Values.watchNamespaces) -}}
{{- range (lookup "apps/v1" "Deployment" "" "").items -}}
{{- $labels := default dict .metadata.labels -}}
{{- if and (eq (default "" (index $labels "app.kubernetes.io/name")) "streamtopology-operator") (ne .metadata.namespace $.Release.Namespace) -}}
{{- $theirs := "" -}}
{{- range (index .spec.template.spec.containers 0).env -}}
{{- if eq .name "STREAMTOPOLOGY_WATCH_NAMESPACES" -}}{{- $theirs = default "" .value -}}{{- end -}}
{{- end -}}
{{- $shared := list -}}
{{- range $.Values.watchNamespaces -}}
{{- if has . (splitList "," $theirs) -}}{{- $shared = append $shared . -}}{{- end -}}
{{- end -}}
{{- if or (not $theirs) (not $.Values.watchNamespaces) $shared -}}
{{- $where := "all namespaces" -}}
{{- if $theirs -}}{{- $where = $theirs -}}{{- end -}}
{{- fail (printf "the operator in namespace %s serves %s: set watchNamespaces here and there so that they do not overlap" .metadata.namespace $where) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuses an upgrade that takes a namespace away in which topologies live: their finalizers would wait for an operator. */}}
{{- define "streamtopology.served" -}}
{{- $deployment := lookup "apps/v1" "Deployment" .Release.Namespace (include "streamtopology.fullname" .) -}}
{{- if and .Values.watchNamespaces $deployment (.Capabilities.APIVersions.Has "streamtopology.dev/v1alpha1") -}}
{{- $before := "" -}}
{{- range (index $deployment.spec.template.spec.containers 0).env -}}
{{- if eq .name "STREAMTOPOLOGY_WATCH_NAMESPACES" -}}{{- $before = default "" .value -}}{{- end -}}
{{- end -}}
{{- range splitList "," $before -}}
{{- if not (has . $.Values.watchNamespaces) -}}
{{- range (lookup "streamtopology.dev/v1alpha1" "StreamTopology" . "").items -}}
{{- $release := index (default dict .metadata.annotations) "streamtopology.dev/served-by" | default $.Release.Namespace -}}
{{- if and (eq $release $.Release.Namespace) (not (has .metadata.namespace $.Values.watchNamespaces)) -}}
{{- fail (printf "nobody would serve %s/%s, as watchNamespaces leaves %s out: delete its topologies first, keep the namespace, or hand them over (kubectl annotate stopo --all -n %s --overwrite streamtopology.dev/served-by=NAMESPACE)" .metadata.namespace .metadata.name .metadata.namespace .metadata.namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What the operator may do in a namespace it works in. docs/run/security.md says why, line by line. */}}
{{- define "streamtopology.rules" -}}
- apiGroups: [streamtopology.dev]
  resources: [streamtopologies]
  verbs: [get, list, watch, patch]
- apiGroups: [streamtopology.dev]
  resources: [streamtopologies/status]
  verbs: [patch]
- apiGroups: [streamtopology.dev]
  resources: [streamtopologies/finalizers]
  verbs: [update]
- apiGroups: [streamtopology.dev]
  resources: [streamtopologysnapshots]
  verbs: [list, watch, create, delete]
- apiGroups: [streamtopology.dev]
  resources: [streamtopologysnapshots/status]
  verbs: [patch]
- apiGroups: [streamtopology.dev]
  resources: [streamtopologysnapshots/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, patch]
- apiGroups: [""]
  resources: [services, serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [""]
  resources: [pods/resize]
  verbs: [patch]
- apiGroups: [apps]
  resources: [deployments, statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [get, list, create, patch]
{{- end -}}
