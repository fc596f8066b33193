//! The wrapper of the API table: a copy of the plugin's in which two functions are replaced.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::{ptr, slice};

use vramfit_model::settings::{FractionPolicy, Value};

use super::config::PublishConfig;
use super::{VirtualGpu, start, stop};
use crate::device::client_options::named_value;
use crate::pjrt::abi::client::{ClientCreateArgs, ClientDestroyArgs};
use crate::pjrt::abi::{self, ApiHeader, Error, Function};
use crate::pjrt::args::read_sized;
use crate::pjrt::cuda_plugin::CudaPlugin;
use crate::pjrt::names::NAMES;
use crate::pjrt::pointers;

const CREATE: &str = "PJRT_Client_Create";
const DESTROY: &str = "PJRT_Client_Destroy";

/// The settings of a client, as far as they are published.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientInfo {
    pub(super) settings: vramfit_model::published::ClientSettings,
    pub(super) virtual_gpu: Option<&'static VirtualGpu>,
}

struct ApiWrapper {
    /// The copy that JAX gets; words, so that it is aligned.
    table: Box<[usize]>,
    plugin: CudaPlugin,
    create: Function,
    destroy: Function,
    config: PublishConfig,
    virtual_gpu: fn() -> Option<&'static VirtualGpu>,
}

// SAFETY: nothing changes after it is made, and the functions may be called from any thread.
unsafe impl Send for ApiWrapper {}
// SAFETY: as above.
unsafe impl Sync for ApiWrapper {}

static WRAPPER: OnceLock<Option<ApiWrapper>> = OnceLock::new();

/// Returns a table that publishes and otherwise does what `inner` does, or `inner` itself if publishing
/// is off or not possible. Only the first table is wrapped.
///
/// # Safety
/// `inner` is the table of a loaded plugin, or null.
pub(crate) unsafe fn wrap(
    inner: *const ApiHeader,
    virtual_gpu: fn() -> Option<&'static VirtualGpu>,
) -> *const ApiHeader {
    if inner.is_null() {
        return inner;
    }
    let wrapper = WRAPPER.get_or_init(|| {
        let config = PublishConfig::read()?;
        // SAFETY: promised by the caller.
        let wrapper = unsafe { ApiWrapper::new(inner, config.clone(), virtual_gpu) };
        if wrapper.is_none() {
            super::log_verbose(&config, "not publishing: this plugin has no functions for clients");
        }
        wrapper
    });
    match wrapper {
        Some(wrapper) if ptr::eq(wrapper.plugin.table(), inner) => wrapper.table.as_ptr().cast(),
        _ => inner,
    }
}

impl ApiWrapper {
    unsafe fn new(
        inner: *const ApiHeader,
        config: PublishConfig,
        virtual_gpu: fn() -> Option<&'static VirtualGpu>,
    ) -> Option<Self> {
        let plugin = CudaPlugin::from_table(inner);
        if plugin.header().major != 0 {
            return None; // an unknown major version
        }
        let (create, destroy) = (plugin.function(CREATE)?, plugin.function(DESTROY)?);
        // The copy has the size, version and extensions of the original, and its newer functions, which
        // have no name here.
        let words = plugin.header().struct_size / size_of::<usize>();
        let mut table: Box<[usize]> = slice::from_raw_parts(inner.cast::<usize>(), words).into();
        *table.get_mut(slot_of(CREATE)?)? = create_and_publish as *const () as usize;
        *table.get_mut(slot_of(DESTROY)?)? = stop_and_destroy as *const () as usize;
        Some(ApiWrapper { table, plugin, create, destroy, config, virtual_gpu })
    }
}

/// Returns the index of a function's pointer in the table, in words.
fn slot_of(name: &str) -> Option<usize> {
    let position = NAMES.iter().position(|known| *known == name)?;
    Some(size_of::<ApiHeader>() / size_of::<usize>() + position)
}

fn wrapper() -> &'static ApiWrapper {
    let wrapper = WRAPPER.get().and_then(Option::as_ref);
    wrapper.expect("its functions are only reached through its table")
}

unsafe extern "C" fn create_and_publish(args: *mut c_void) -> *mut Error {
    let wrapper = wrapper();
    let error = (wrapper.create)(args);
    if error.is_null() {
        // A panic must not reach the user's program; the client is not published then.
        let _ = catch_unwind(AssertUnwindSafe(|| publish(wrapper, args)));
    }
    error
}

unsafe fn publish(wrapper: &'static ApiWrapper, args: *mut c_void) {
    let Some(args) = read_sized(args.cast::<ClientCreateArgs>().cast_const()) else {
        return;
    };
    if args.client.is_null() {
        return;
    }
    let client_info =
        ClientInfo { settings: read_settings(&args), virtual_gpu: (wrapper.virtual_gpu)() };
    start(&wrapper.plugin, args.client, client_info, &wrapper.config);
}

unsafe extern "C" fn stop_and_destroy(args: *mut c_void) -> *mut Error {
    let wrapper = wrapper();
    let client: Option<*mut abi::Client> =
        read_sized(args.cast::<ClientDestroyArgs>().cast_const()).map(|args| args.client);
    if let Some(client) = client.filter(|client| !client.is_null()) {
        let _ = catch_unwind(AssertUnwindSafe(|| stop(client)));
    }
    (wrapper.destroy)(args)
}

/// Reads the options to show. The client validates them.
unsafe fn read_settings(args: &ClientCreateArgs) -> vramfit_model::published::ClientSettings {
    let mut client_info = vramfit_model::published::ClientSettings {
        visible_devices: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
        ..Default::default()
    };
    for option in pointers::list(args.create_options, args.num_options) {
        match named_value(option) {
            (name, Value::String(kind)) if name == "allocator" => {
                client_info.allocator = Some(kind);
            }
            (name, Value::Bool(on)) if name == "preallocate" => {
                client_info.preallocate = Some(on);
            }
            (name, Value::Float(fraction)) if name == "memory_fraction" => {
                client_info.fraction.get_or_insert(f64::from(fraction));
            }
            // It goes before the number.
            (name, Value::String(text)) if name == "memory_fraction_policy" => {
                let policy = FractionPolicy::parse(&text).ok();
                client_info.fraction = policy.map(|policy| policy.start).or(client_info.fraction);
            }
            _ => {}
        }
    }
    client_info
}
