//! A Kubernetes job.

use super::{HOST_MEMORY_PER_GPU, Launch, notes, quote, variables};

/// Name of the job, of the service that its pods are found by, and of the account they run as.
const NAME: &str = "jax-train";

pub(super) fn write(launch: &Launch) -> String {
    let lines = variables(launch, "            # ", |variable| {
        format!(
            "            - name: {}\n              value: {}",
            variable.name,
            quote::yaml_template(&variable.value)
        )
    });
    let environment = match launch.variables.is_empty() {
        true => "          env: []\n".to_owned(),
        false => format!("          env:\n{lines}"),
    };
    let Launch { gpus, image, .. } = launch;
    let Shape { before, job, pod, image_note, memory, shared_memory } = match launch.hosts {
        None => Shape::of_one_host(),
        Some(hosts) => Shape::of_several_hosts(hosts, *gpus),
    };
    format!(
        "\
# Memory settings for JAX in a job: `kubectl apply -f job.yaml`.
{}{before}apiVersion: batch/v1
kind: Job
metadata:
  name: {NAME}
spec:
{job}  # A program that ran out of memory would do so again.
  backoffLimit: 0
  template:
    spec:
{pod}      restartPolicy: Never
      containers:
        - name: train
          # An image with your program, JAX and vramfit; `vramfit env dockerfile` prints a Dockerfile.
{image_note}          image: {}
          command: [{}]
{environment}          resources:
            # Whole GPUs or MIG slices (nvidia.com/mig-1g.10gb). Where the cluster shares GPUs by time
            # slicing or MPS, nothing here limits memory: set a fraction for each process.
            limits:
              nvidia.com/gpu: {gpus}
              memory: {memory}Gi
          # Passes once JAX can use the GPU. The check must not preallocate a second pool.
          startupProbe:
            exec:
              command:
                - sh
                - -c
                - XLA_PYTHON_CLIENT_PREALLOCATE=false vramfit doctor --require gpu
            timeoutSeconds: 120
            periodSeconds: 30
            failureThreshold: 5
          volumeMounts:
            - name: shm
              mountPath: /dev/shm
      volumes:
        # {shared_memory}; the default is 64 MB.
        - name: shm
          emptyDir:
            medium: Memory
            sizeLimit: 8Gi
",
        notes(launch, "# "),
        quote::yaml(image),
        quote::yaml_template_list(&launch.command),
    )
}

/// What depends on the number of hosts: whole lines, except the last two.
struct Shape {
    before: String,
    job: String,
    pod: String,
    image_note: &'static str,
    /// Host memory of a pod, in GiB.
    memory: u32,
    shared_memory: &'static str,
}

impl Shape {
    fn of_one_host() -> Self {
        Shape {
            before: String::new(),
            job: String::new(),
            pod: String::new(),
            image_note: "",
            memory: 64,
            shared_memory: "Batches passed between processes are in shared memory",
        }
    }

    /// Returns the shape that JAX recognizes: it asks Kubernetes for its pod and its job, and finds
    /// the first pod by the name of the service.
    fn of_several_hosts(hosts: u32, gpus: u32) -> Self {
        Shape {
            before: format!(
                "\
# `jax.distributed.initialize()` without arguments connects the pods, one process each with all GPUs
# of its pod. It asks Kubernetes for its own pod and job, which the account must be allowed to read.
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {NAME}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {NAME}
rules:
  - apiGroups: [\"\"]
    resources: [pods, services]
    verbs: [get, list]
  - apiGroups: [batch]
    resources: [jobs]
    verbs: [get]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {NAME}
subjects:
  - kind: ServiceAccount
    name: {NAME}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {NAME}
---
# Gives each pod a name: {NAME}-0.{NAME} is the one that the others connect to.
apiVersion: v1
kind: Service
metadata:
  name: {NAME}
spec:
  clusterIP: None
  # The pods connect to each other before the startup probe has passed.
  publishNotReadyAddresses: true
  selector:
    job-name: {NAME}
---
"
            ),
            job: [
                "  # One pod for each host, numbered from 0; all of them run at the same time.\n",
                "  completionMode: Indexed\n",
                &format!("  completions: {hosts}\n  parallelism: {hosts}\n"),
            ]
            .concat(),
            pod: format!("      serviceAccountName: {NAME}\n      subdomain: {NAME}\n"),
            image_note: "          # JAX needs the package `kubernetes` in it: `pip install jax[k8s]`.\n",
            memory: gpus * HOST_MEMORY_PER_GPU,
            shared_memory: "NCCL's buffers and batches passed between processes are in shared memory",
        }
    }
}
