//! Errors and events.

use std::ffi::{c_char, c_int, c_void};

use super::{Error, Event, EventOnReadyCallback};

args! {
    sized struct ErrorDestroyArgs {
        error: *mut Error,
    }
    sized struct ErrorMessageArgs {
        error: *const Error,
        message: *const c_char,
        message_size: usize,
    }
    sized struct ErrorGetCodeArgs {
        error: *const Error,
        code: c_int,
    }
    sized struct ErrorForEachPayloadArgs {
        error: *const Error,
        visitor: *mut c_void,
        user_arg: *mut c_void,
    }
    sized struct EventDestroyArgs {
        event: *mut Event,
    }
    sized struct EventIsReadyArgs {
        event: *mut Event,
        is_ready: bool,
    }
    sized struct EventErrorArgs {
        event: *mut Event,
    }
    sized struct EventAwaitArgs {
        event: *mut Event,
    }
    sized struct EventOnReadyArgs {
        event: *mut Event,
        callback: Option<EventOnReadyCallback>,
        user_arg: *mut c_void,
    }
    sized struct EventCreateArgs {
        event: *mut Event,
    }
    sized struct EventSetArgs {
        event: *mut Event,
        error_code: c_int,
        error_message: *const c_char,
        error_message_size: usize,
    }
}
