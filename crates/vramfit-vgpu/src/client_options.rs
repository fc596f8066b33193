//! (Stands in until the settings room has landed.)
pub(crate) enum Value {
    String(String),
    Int64(i64),
    Int64List(Vec<i64>),
    Float(f32),
    Bool(bool),
}
pub(crate) struct OptionError {
    pub(crate) code: i32,
    pub(crate) message: String,
}
pub(crate) struct ClientOptions {
    pub(crate) allocator: String,
    pub(crate) memory_fraction: f64,
    pub(crate) preallocate: bool,
    pub(crate) collective_memory_bytes: Option<u64>,
}
impl ClientOptions {
    pub(crate) fn from_named_values(
        named: &[(String, Value)],
        _minor: u32,
    ) -> Result<Self, OptionError> {
        let mut o = ClientOptions {
            allocator: "default".into(),
            memory_fraction: 0.75,
            preallocate: true,
            collective_memory_bytes: None,
        };
        for (name, value) in named {
            match (name.as_str(), value) {
                ("allocator", Value::String(s)) => o.allocator = s.clone(),
                ("memory_fraction", Value::Float(f)) => o.memory_fraction = f64::from(*f),
                ("preallocate", Value::Bool(b)) => o.preallocate = *b,
                ("collective_memory_size", Value::Int64(b)) => {
                    o.collective_memory_bytes = Some(*b as u64)
                }
                ("memory_fraction", _) => {
                    return Err(OptionError {
                        code: 3,
                        message: "type".into(),
                    });
                }
                (_, Value::Int64List(_)) => {}
                _ => {}
            }
        }
        Ok(o)
    }
}
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) patch: u32,
}
impl Version {
    pub(crate) fn new(major: u32, minor: u32, patch: u32) -> Self {
        Version {
            major,
            minor,
            patch,
        }
    }
}
impl std::str::FromStr for Version {
    type Err = ();
    fn from_str(s: &str) -> Result<Self, ()> {
        let p: Vec<u32> = s.split('.').filter_map(|x| x.parse().ok()).collect();
        if p.len() >= 3 {
            Ok(Version::new(p[0], p[1], p[2]))
        } else {
            Err(())
        }
    }
}
