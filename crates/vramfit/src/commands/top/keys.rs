//! Keys that people know from other monitors.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::state::Action;

/// Returns what a key asks for, which depends on whether a filter is being typed.
pub(super) fn action(key: &KeyEvent, is_editing: bool) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return matches!(key.code, KeyCode::Char('c')).then_some(Action::Quit);
    }
    if is_editing {
        return match key.code {
            KeyCode::Char(letter) => Some(Action::Letter(letter)),
            KeyCode::Backspace => Some(Action::Erase),
            KeyCode::Enter => Some(Action::Accept),
            KeyCode::Esc => Some(Action::Back),
            _ => None,
        };
    }
    Some(match key.code {
        KeyCode::Char('q') => Action::Quit,
        KeyCode::Char('h' | '?') => Action::Help,
        KeyCode::Up | KeyCode::Char('k') => Action::Up,
        KeyCode::Down | KeyCode::Char('j') => Action::Down,
        KeyCode::PageUp => Action::PageUp,
        KeyCode::PageDown => Action::PageDown,
        KeyCode::Home => Action::First,
        KeyCode::End => Action::Last,
        KeyCode::Enter => Action::Details,
        KeyCode::Char('t') => Action::GroupByGpu,
        KeyCode::Char('s') => Action::Sort,
        KeyCode::Char(' ') => Action::Pause,
        KeyCode::Left => Action::StepBack,
        KeyCode::Right => Action::StepForward,
        KeyCode::Char('a') => Action::OnlyJax,
        KeyCode::Char('/') => Action::StartFilter,
        KeyCode::Esc => Action::Back,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_keys_or_text() {
        let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
        assert_eq!(action(&key(KeyCode::Char('q')), false), Some(Action::Quit));
        assert_eq!(action(&key(KeyCode::Char('q')), true), Some(Action::Letter('q')));
        assert_eq!(action(&key(KeyCode::Enter), false), Some(Action::Details));
        assert_eq!(action(&key(KeyCode::Enter), true), Some(Action::Accept));
        assert_eq!(action(&key(KeyCode::Char('z')), false), None);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(action(&interrupt, true), Some(Action::Quit));
    }
}
