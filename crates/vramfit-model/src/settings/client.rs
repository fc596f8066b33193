//! The options that JAX hands to the plugin when it makes a client, checked as XLA checks them.
//!
//! The messages and their order were recorded from the released plugins of JAX 0.4.30 to 0.12.0,
//! which check the options before they look for a GPU. What JAX makes of the environment before
//! that is in the table; what the plugin reads by itself is in [`super::plugin`].

use super::fraction::FractionPolicy;
use crate::allocator::{AllocatorKind, DEFAULT_FRACTION};

/// A value of the PJRT C API.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text.
    String(String),
    /// A whole number.
    Int64(i64),
    /// Several whole numbers.
    Int64List(Vec<i64>),
    /// A 32-bit float; JAX narrows Python's floats to it.
    Float(f32),
    /// A truth value.
    Bool(bool),
}

impl Value {
    /// Returns the number by which XLA's message tells the type that was given: the place in the
    /// C++ variant.
    fn given_index(&self) -> u32 {
        match self {
            Value::String(_) => 0,
            Value::Bool(_) => 1,
            Value::Int64(_) => 2,
            Value::Int64List(_) => 3,
            Value::Float(_) => 4,
        }
    }

    /// Returns the number by which XLA's message tells the type that was expected: the enumeration
    /// of the C API, which counts differently. A list for a fraction is thus told as "has type index
    /// 3 but expected type index is 3".
    fn expected_index(&self) -> u32 {
        match self {
            Value::String(_) => 0,
            Value::Int64(_) => 1,
            Value::Int64List(_) => 2,
            Value::Float(_) => 3,
            Value::Bool(_) => 4,
        }
    }
}

/// An answer of the client's constructor that is not a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionError {
    /// The code of the PJRT C API: 3 `INVALID_ARGUMENT`, 5 `NOT_FOUND`, 12 `UNIMPLEMENTED`.
    pub code: i32,
    /// XLA's sentence.
    pub message: String,
}

const INVALID_ARGUMENT: i32 = 3;
const NOT_FOUND: i32 = 5;
const UNIMPLEMENTED: i32 = 12;

/// What a client was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientOptions {
    /// The allocator.
    pub allocator: AllocatorKind,
    /// The part of the GPU's total memory that the pool may take, as the 32-bit number JAX passes.
    ///
    /// XLA checks no range. Above 1, without unified memory, the limit exceeds the GPU and the pool
    /// takes what the driver grants after backing off; at 0 every allocation fails; below 0 and for
    /// what is not a number the conversion to bytes is undefined in C++.
    pub memory_fraction: f32,
    /// What a text said of the fraction, where there was one; it goes before the number.
    pub fraction_policy: Option<FractionPolicy>,
    /// Whether the pool takes its limit at the first request.
    pub preallocate: bool,
    /// Bytes of a preallocated pool for collective memory; `None` where none was asked for.
    pub collective_memory_bytes: Option<u64>,
    /// The GPUs to use, by number; `None` is all.
    pub visible_devices: Option<Vec<i64>>,
    /// The platform's name, where one was given.
    pub platform_name: Option<String>,
    /// This process's number among several.
    pub node_id: i64,
    /// How many processes there are.
    pub num_nodes: i64,
    /// This process's partition, where it was told.
    pub partition_index: Option<i64>,
    /// Whether the other processes are only pretended.
    pub enable_mock_nccl: bool,
    /// The topology to pretend.
    pub mock_gpu_topology: Option<String>,
    /// Whether transfers go through pinned host memory.
    pub should_stage_host_to_device_transfers: bool,
    /// Whether a failing process ends the collectives of the others.
    pub abort_collectives_on_failure: bool,
    /// Whether XLA's other GPU client was asked for.
    pub use_tfrt_gpu_client: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions {
            allocator: AllocatorKind::Bfc,
            memory_fraction: DEFAULT_FRACTION as f32,
            fraction_policy: None,
            preallocate: true,
            collective_memory_bytes: None,
            visible_devices: None,
            platform_name: None,
            node_id: 0,
            num_nodes: 1,
            partition_index: None,
            enable_mock_nccl: false,
            mock_gpu_topology: None,
            should_stage_host_to_device_transfers: true,
            abort_collectives_on_failure: false,
            use_tfrt_gpu_client: false,
        }
    }
}

impl ClientOptions {
    /// Returns the part of the GPU's total memory that the pool begins with, and with which it ends unless it grows, as
    /// XLA has it: a number in 64 bits.
    pub fn fraction(&self) -> f64 {
        self.fraction_policy.map_or(f64::from(self.memory_fraction), |policy| policy.start)
    }

    /// Reads the options as a plugin of that minor version of the PJRT C API would.
    ///
    /// # Errors
    /// What XLA answers to a name it does not know, a value of the wrong type, an allocator or a
    /// platform it does not have. Of several mistakes XLA tells one at random, because it walks a
    /// hash table; here it is the first in the order given. Names and types come before the rest.
    pub fn from_named_values(
        named: &[(String, Value)],
        api_minor: u32,
    ) -> Result<ClientOptions, OptionError> {
        let mut options = ClientOptions::default();
        let mut allocator = None;
        let mut policy = None;
        for (name, value) in named {
            let expected = expected_type(name, api_minor).ok_or_else(|| OptionError {
                code: INVALID_ARGUMENT,
                message: format!("Unexpected option name passed to PJRT_Client_Create: {name}"),
            })?;
            match (name.as_str(), value) {
                ("allocator", Value::String(word)) => allocator = Some(word),
                ("platform_name", Value::String(word)) => {
                    options.platform_name = Some(word.clone());
                }
                ("memory_fraction", Value::Float(part)) => options.memory_fraction = *part,
                ("memory_fraction_policy", Value::String(text)) => policy = Some(text),
                ("preallocate", Value::Bool(on)) => options.preallocate = *on,
                ("collective_memory_size", Value::Int64(bytes)) => {
                    options.collective_memory_bytes =
                        u64::try_from(*bytes).ok().filter(|bytes| *bytes > 0);
                }
                ("visible_devices", Value::Int64List(list)) => {
                    options.visible_devices = Some(list.clone());
                }
                ("node_id", Value::Int64(id)) => options.node_id = *id,
                ("num_nodes", Value::Int64(count)) => options.num_nodes = *count,
                ("partition_index" | "slice_index", Value::Int64(index)) => {
                    options.partition_index = Some(*index);
                }
                ("enable_mock_nccl", Value::Bool(on)) => options.enable_mock_nccl = *on,
                ("mock_gpu_topology", Value::String(text)) => {
                    options.mock_gpu_topology = Some(text.clone());
                }
                ("should_stage_host_to_device_transfers", Value::Bool(on)) => {
                    options.should_stage_host_to_device_transfers = *on;
                }
                ("abort_collectives_on_failure", Value::Bool(on)) => {
                    options.abort_collectives_on_failure = *on;
                }
                ("use_tfrt_gpu_client", Value::Bool(on)) => options.use_tfrt_gpu_client = *on,
                _ => {
                    return Err(OptionError {
                        code: INVALID_ARGUMENT,
                        message: format!(
                            "Option passed to PJRT_Client_Create with name {name} has type index \
                             {} but expected type index is {}",
                            value.given_index(),
                            expected.expected_index(),
                        ),
                    });
                }
            }
        }
        if let Some(text) = policy {
            let parsed = FractionPolicy::parse(text).map_err(|message| OptionError {
                code: INVALID_ARGUMENT,
                message: format!("memory_fraction_policy: {message}"),
            })?;
            options.fraction_policy = Some(parsed);
        }
        if let Some(word) = allocator {
            options.allocator = parse_allocator(word, api_minor)?;
        }
        match options.platform_name.as_deref().map(canonical_platform) {
            Some(name) if name != "cuda" => Err(OptionError {
                code: NOT_FOUND,
                message: format!(
                    "Could not find registered platform with name: \"{name}\". Available platform \
                     names are: CUDA",
                ),
            }),
            _ => Ok(options),
        }
    }
}

/// Minor versions of the PJRT C API at which the plugin changed what it takes. Each is the version of
/// the first release that behaves so: 0.4.35, 0.5.3, 0.6.0, 0.7.0, 0.7.1, 0.10.0, 0.11.0, 0.12.0.
const API_0_4_35: u32 = 55;
const API_0_5_3: u32 = 67;
const API_0_6_0: u32 = 68;
const API_0_7_0: u32 = 73;
const API_0_7_1: u32 = 75;
const API_0_10_0: u32 = 104;
const API_0_11_0: u32 = 114;
const API_0_12_0: u32 = 116;

/// Returns a value of the type that the plugin wants for an option, `None` for a name it does not know.
fn expected_type(name: &str, api_minor: u32) -> Option<Value> {
    let (since, before) = match name {
        "mock_gpu_topology" => (API_0_4_35, u32::MAX),
        "should_stage_host_to_device_transfers" => (API_0_5_3, u32::MAX),
        // One option under two names.
        "slice_index" => (API_0_6_0, API_0_7_1),
        "partition_index" => (API_0_7_1, u32::MAX),
        "abort_collectives_on_failure" => (API_0_7_0, u32::MAX),
        "use_tfrt_gpu_client" => (API_0_7_1, u32::MAX),
        "memory_fraction_policy" => (API_0_12_0, u32::MAX),
        _ => (0, u32::MAX),
    };
    if !(since..before).contains(&api_minor) {
        return None;
    }
    Some(match name {
        "platform_name" | "allocator" | "mock_gpu_topology" | "memory_fraction_policy" => {
            Value::String(String::new())
        }
        "memory_fraction" => Value::Float(0.0),
        "preallocate"
        | "enable_mock_nccl"
        | "should_stage_host_to_device_transfers"
        | "abort_collectives_on_failure"
        | "use_tfrt_gpu_client" => Value::Bool(false),
        "collective_memory_size" | "node_id" | "num_nodes" | "slice_index" | "partition_index" => {
            Value::Int64(0)
        }
        "visible_devices" => Value::Int64List(Vec::new()),
        _ => return None,
    })
}

/// Reads the allocator's name. The plugin wants it in lower case; JAX has lowered it before.
fn parse_allocator(word: &str, api_minor: u32) -> Result<AllocatorKind, OptionError> {
    let mut known = vec!["default", "platform", "bfc", "cuda_async"];
    if api_minor >= API_0_10_0 {
        known.push("vmm");
    }
    if api_minor >= API_0_11_0 {
        known.push("address");
    }
    let kind = known.contains(&word).then(|| word.parse().ok()).flatten();
    kind.ok_or_else(|| {
        let quoted: Vec<String> = known.iter().map(|name| format!("'{name}'")).collect();
        let (last, others) = quoted.split_last().expect("there are always four or more");
        OptionError {
            code: UNIMPLEMENTED,
            message: format!(
                "Allocator {word} not supported for PJRT GPU plugin. Supported allocator options \
                 are: {} and {last}.",
                others.join(", "),
            ),
        }
    })
}

/// Brings a platform's name into the one form in which XLA compares and tells it.
fn canonical_platform(name: &str) -> String {
    match name.to_lowercase().as_str() {
        "gpu" => "cuda".to_owned(),
        "cpu" => "host".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const API_0_10_2: u32 = 112;

    fn read(named: &[(&str, Value)]) -> Result<ClientOptions, OptionError> {
        let named: Vec<_> =
            named.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        ClientOptions::from_named_values(&named, API_0_10_2)
    }

    #[test]
    fn no_options_are_what_jax_takes_by_default() {
        assert_eq!(read(&[]), Ok(ClientOptions::default()));
        assert_eq!(
            read(&[("allocator", Value::String("default".into()))]),
            Ok(ClientOptions::default())
        );
    }

    #[test]
    fn what_is_given_is_kept() {
        let options = read(&[
            ("allocator", Value::String("cuda_async".into())),
            ("memory_fraction", Value::Float(0.9)),
            ("preallocate", Value::Bool(false)),
            ("collective_memory_size", Value::Int64(1 << 20)),
            ("visible_devices", Value::Int64List(vec![0, 2])),
            ("num_nodes", Value::Int64(4)),
        ])
        .unwrap();
        assert_eq!(options.allocator, AllocatorKind::CudaAsync);
        // Not 0.9: the C API carries 32 bits, and XLA computes with what arrives.
        assert_eq!(f64::from(options.memory_fraction), 0.899_999_976_158_142_1);
        assert!(!options.preallocate);
        assert_eq!(options.collective_memory_bytes, Some(1 << 20));
        assert_eq!(options.visible_devices, Some(vec![0, 2]));
        assert_eq!(options.num_nodes, 4);
    }

    #[test]
    fn no_range_of_the_fraction_is_checked() {
        for fraction in [-1.0, 0.0, 2.0, 100.0, f32::INFINITY] {
            let options = read(&[("memory_fraction", Value::Float(fraction))]).unwrap();
            assert_eq!(options.memory_fraction, fraction);
        }
    }

    #[test]
    fn names_and_types_are_checked_before_words() {
        let told = |named: &[(&str, Value)]| read(named).unwrap_err().message;
        let word = || Value::String("zzz".into());
        assert!(
            told(&[("allocator", word()), ("memory_fraction", word())])
                .starts_with("Option passed to PJRT_Client_Create with name memory_fraction")
        );
        assert!(
            told(&[("platform_name", word()), ("allocator", word())])
                .starts_with("Allocator zzz not supported")
        );
        assert!(
            told(&[("foo", word()), ("memory_fraction", word())])
                .starts_with("Unexpected option name")
        );
    }
}
