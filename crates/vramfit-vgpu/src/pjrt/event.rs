//! Events. Nothing on the virtual GPU takes time, so an event is ready when it is made; only
//! events that JAX creates itself wait to be set.

use std::ffi::c_void;
use std::sync::{Condvar, Mutex, PoisonError};

use crate::lock;
use crate::pjrt::abi::error::{
    EventAwaitArgs, EventCreateArgs, EventDestroyArgs, EventErrorArgs, EventIsReadyArgs,
    EventOnReadyArgs, EventSetArgs,
};
use crate::pjrt::abi::{Event, EventOnReadyCallback};
use crate::pjrt::error;
use crate::pjrt::pointers;
use crate::pjrt::status::{PjrtResult, Status};

struct EventObject {
    state: Mutex<EventState>,
    changed: Condvar,
}

enum EventState {
    Ready(PjrtResult),
    Waiting(Vec<(EventOnReadyCallback, UserArgument)>),
}

struct UserArgument(*mut c_void);

// SAFETY: the pointer is only passed to the callback that it was registered with, by whichever thread
// sets the event; the API says that callbacks may be called from any thread.
unsafe impl Send for UserArgument {}

/// Makes an event that is ready, with success or an error.
pub(crate) fn ready(result: PjrtResult) -> *mut Event {
    EventObject::new_handle(EventState::Ready(result))
}

unsafe fn object<'a>(event: *mut Event) -> &'a EventObject {
    &*event.cast::<EventObject>()
}

impl EventObject {
    fn new_handle(state: EventState) -> *mut Event {
        pointers::into_handle(EventObject { state: Mutex::new(state), changed: Condvar::new() })
    }

    fn result(&self) -> Option<PjrtResult> {
        match &*lock(&self.state) {
            EventState::Ready(result) => Some(result.clone()),
            EventState::Waiting(_) => None,
        }
    }
}

fn error_pointer(result: PjrtResult) -> *mut crate::pjrt::abi::Error {
    result.err().map_or(std::ptr::null_mut(), error::into_raw)
}

pub(crate) unsafe fn destroy(args: &mut EventDestroyArgs) -> PjrtResult {
    pointers::destroy::<EventObject, _>(args.event)
}

pub(crate) unsafe fn is_ready(args: &mut EventIsReadyArgs) -> PjrtResult {
    args.is_ready = object(args.event).result().is_some();
    Ok(())
}

pub(crate) unsafe fn error(args: &mut EventErrorArgs) -> PjrtResult {
    object(args.event).result().unwrap_or(Ok(()))
}

pub(crate) unsafe fn wait(args: &mut EventAwaitArgs) -> PjrtResult {
    let event = object(args.event);
    let mut state = lock(&event.state);
    loop {
        if let EventState::Ready(result) = &*state {
            return result.clone();
        }
        state = event.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

pub(crate) unsafe fn on_ready(args: &mut EventOnReadyArgs) -> PjrtResult {
    let callback = args.callback.ok_or_else(|| Status::internal("no callback was provided"))?;
    let mut state = lock(&object(args.event).state);
    let result = match &mut *state {
        EventState::Ready(result) => result.clone(),
        EventState::Waiting(callbacks) => {
            callbacks.push((callback, UserArgument(args.user_arg)));
            return Ok(());
        }
    };
    // The callback may destroy the event, so the lock must be gone.
    drop(state);
    callback(error_pointer(result), args.user_arg);
    Ok(())
}

pub(crate) unsafe fn create(args: &mut EventCreateArgs) -> PjrtResult {
    args.event = EventObject::new_handle(EventState::Waiting(Vec::new()));
    Ok(())
}

pub(crate) unsafe fn set(args: &mut EventSetArgs) -> PjrtResult {
    let result = if args.error_code == 0 {
        Ok(())
    } else {
        let text = pointers::text(args.error_message, args.error_message_size);
        Err(Status::with_code(args.error_code, text))
    };
    let event = object(args.event);
    let before = std::mem::replace(&mut *lock(&event.state), EventState::Ready(result.clone()));
    event.changed.notify_all();
    if let EventState::Waiting(callbacks) = before {
        for (callback, argument) in callbacks {
            callback(error_pointer(result.clone()), argument.0);
        }
    }
    Ok(())
}
