//! The recorded programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use prost::Message;
use serde_json::Value;
use vramfit_model::program::memory::Names;
use vramfit_model::program::proto::{
    BufferAssignmentProto, ExecutableAndOptionsProto, GpuExecutableProto, HloModuleProto,
    HloModuleProtoWithConfig, HloProto,
};
use vramfit_model::program::{Program, ProgramMemory};

/// One recorded program.
pub(crate) struct Recorded {
    /// Release of JAX and name, such as `jax0.10.2-adam`.
    pub(crate) name: String,
    pub(crate) dump: Vec<u8>,
    pub(crate) program: Program,
    pub(crate) assignment: BufferAssignmentProto,
    pub(crate) names: Names,
    /// What `memory_analysis()` said.
    pub(crate) figures: Value,
}

impl Recorded {
    pub(crate) fn memory(&self) -> ProgramMemory {
        ProgramMemory::from_dump(&self.program, &self.dump, &self.names).expect(&self.name)
    }

    /// Returns one of XLA's figures, such as that for `temp`.
    pub(crate) fn figure(&self, what: &str) -> u64 {
        let key = format!("{what}_size_in_bytes");
        self.figures[&key].as_u64().expect("a recorded figure")
    }
}

/// Returns all of them, read once: there are many, and many tests.
pub(crate) fn all() -> &'static [Recorded] {
    static ALL: OnceLock<Vec<Recorded>> = OnceLock::new();
    ALL.get_or_init(read_all)
}

fn read_all() -> Vec<Recorded> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/memory");
    let files = fs::read_dir(&folder).expect("the fixtures are part of the repository");
    let mut dumps: Vec<PathBuf> = files
        .map(|file| file.expect("readable").path())
        .filter(|path| path.to_string_lossy().ends_with(".hlo.pb"))
        .collect();
    dumps.sort();
    assert!(dumps.len() >= 20, "only {} were recorded", dumps.len());
    dumps.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Recorded {
    let dump = fs::read(path).expect("readable");
    let name = path.file_name().expect("a name").to_string_lossy();
    let name = name.trim_end_matches(".hlo.pb").to_owned();
    let figures = fs::read_to_string(path.with_file_name(format!("{name}.json")));
    let figures: Value = serde_json::from_str(&figures.expect("recorded")).expect("JSON");
    let list = |key: &str| {
        let names = figures[key].as_array().expect("a list").iter();
        let names = names.map(|name| name.as_str().expect("a text").to_owned());
        names.collect()
    };
    let names =
        Names { arguments: list("arguments"), outputs: list("outputs"), ..Names::default() };
    let proto = HloProto::decode(dump.as_slice()).expect("a dump");
    let module = proto.hlo_module.expect("a module");
    let assignment = proto.buffer_assignment.expect("a buffer assignment");
    Recorded { program: program(&module, &assignment), name, dump, assignment, names, figures }
}

/// Returns the program that belongs to a module: it is packed as older releases serialize it, so that
/// it is read as any executable is.
pub(crate) fn program(module: &HloModuleProto, assignment: &BufferAssignmentProto) -> Program {
    let with_config = HloModuleProtoWithConfig { hlo_module: Some(module.clone()), config: None };
    let executable = GpuExecutableProto {
        hlo_module_with_config: with_config.encode_to_vec(),
        buffer_assignment: Some(assignment.clone()),
        ..GpuExecutableProto::default()
    };
    let outer = ExecutableAndOptionsProto {
        serialized_executable: executable.encode_to_vec(),
        ..ExecutableAndOptionsProto::default()
    };
    Program::parse(&outer.encode_to_vec(), &[]).expect("a program")
}
