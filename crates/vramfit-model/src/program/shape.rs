//! Element types, dimensions and layouts, as XLA's protos and the PJRT C API number them.

use super::proto::{LayoutProto, ShapeProto};

/// An element type, by its number in XLA's protos (`PrimitiveType`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ElementType(pub i32);

/// Number in the protos, number in the PJRT C API, bits, name. Both numberings from the headers
/// of PJRT API 0.112; the order of the C API's numbers is that of its enum.
const TYPES: &[(i32, i32, u32, &str)] = &[
    (1, 1, 8, "pred"),
    (2, 2, 8, "s8"),
    (3, 3, 16, "s16"),
    (4, 4, 32, "s32"),
    (5, 5, 64, "s64"),
    (6, 6, 8, "u8"),
    (7, 7, 16, "u16"),
    (8, 8, 32, "u32"),
    (9, 9, 64, "u64"),
    (10, 10, 16, "f16"),
    (11, 11, 32, "f32"),
    (12, 12, 64, "f64"),
    (16, 13, 16, "bf16"),
    (15, 14, 64, "c64"),
    (18, 15, 128, "c128"),
    (19, 16, 8, "f8e5m2"),
    (20, 17, 8, "f8e4m3fn"),
    (23, 18, 8, "f8e4m3b11fnuz"),
    (24, 19, 8, "f8e5m2fnuz"),
    (25, 20, 8, "f8e4m3fnuz"),
    (21, 21, 4, "s4"),
    (22, 22, 4, "u4"),
    (17, 23, 0, "token"),
    (26, 24, 2, "s2"),
    (27, 25, 2, "u2"),
    (28, 26, 8, "f8e4m3"),
    (29, 27, 8, "f8e3m4"),
    (33, 28, 8, "f8e8m0fnu"),
    (32, 29, 4, "f4e2m1fn"),
    (30, 30, 1, "s1"),
    (31, 31, 1, "u1"),
];

impl ElementType {
    /// The type of a tuple, which is a table of pointers.
    pub const TUPLE: ElementType = ElementType(13);
    /// The type of bytes.
    pub const U8: ElementType = ElementType(6);
    /// The type of tokens, which have no bytes.
    pub const TOKEN: ElementType = ElementType(17);

    fn row(self) -> Option<&'static (i32, i32, u32, &'static str)> {
        TYPES.iter().find(|row| row.0 == self.0)
    }

    /// Returns the number of this type in the PJRT C API, 0 (invalid) if it has none.
    pub fn pjrt(self) -> i32 {
        self.row().map_or(0, |row| row.1)
    }

    /// Returns the type that has this number in the PJRT C API.
    pub fn from_pjrt(number: i32) -> Option<Self> {
        TYPES.iter().find(|row| row.1 == number).map(|row| ElementType(row.0))
    }

    /// Returns the type that XLA calls so, such as `bf16`.
    pub fn from_name(name: &str) -> Option<Self> {
        TYPES.iter().find(|row| row.3 == name).map(|row| ElementType(row.0))
    }

    /// Returns the bits of one element; 0 for tokens and unknown types.
    pub fn bits(self) -> u32 {
        self.row().map_or(0, |row| row.2)
    }

    /// Returns the bytes of one element when each element takes whole bytes.
    pub fn bytes(self) -> u64 {
        u64::from(self.bits().div_ceil(8))
    }

    /// Returns `true` if elements are floating point numbers, real or complex.
    pub fn is_float(self) -> bool {
        self.name().starts_with(['f', 'b', 'c'])
    }

    /// Returns XLA's name, such as `bf16`.
    pub fn name(self) -> &'static str {
        self.row().map_or("unknown", |row| row.3)
    }
}

/// Where a buffer lives, by XLA's number of the memory space in a layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MemorySpace {
    /// The GPU's memory (0, and any number without a meaning here).
    #[default]
    Device,
    /// The GPU's memory, reachable by collectives (1).
    Collective,
    /// Pinned host memory (5).
    Host,
}

impl MemorySpace {
    /// Returns XLA's number of the memory space.
    pub fn number(self) -> i64 {
        match self {
            MemorySpace::Device => 0,
            MemorySpace::Collective => 1,
            MemorySpace::Host => 5,
        }
    }
}

impl From<i64> for MemorySpace {
    fn from(number: i64) -> Self {
        match number {
            1 => MemorySpace::Collective,
            5 => MemorySpace::Host,
            _ => MemorySpace::Device,
        }
    }
}

/// The shape of one array.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Element type.
    pub element_type: ElementType,
    /// Dimensions, outermost first.
    pub dims: Vec<i64>,
    /// Order of dimensions from the fastest varying, empty for scalars.
    pub minor_to_major: Vec<i64>,
    /// Bits of one element where they are packed (4-bit types and smaller), else 0.
    pub element_bits: i64,
    /// Where it lives.
    pub space: MemorySpace,
}

impl Shape {
    /// Makes a dense row-major shape in device memory.
    pub fn dense(element_type: ElementType, dims: &[i64]) -> Self {
        let bits = element_type.bits();
        Shape {
            element_type,
            dims: dims.to_vec(),
            minor_to_major: (0..dims.len() as i64).rev().collect(),
            element_bits: if bits > 0 && bits < 8 { i64::from(bits) } else { 0 },
            space: MemorySpace::Device,
        }
    }

    /// Reads an array shape; a missing layout is row-major.
    pub fn from_proto(proto: &ShapeProto) -> Self {
        let mut shape = Shape::dense(ElementType(proto.element_type), &proto.dimensions);
        if let Some(layout) = &proto.layout {
            if layout.minor_to_major.len() == shape.dims.len() {
                shape.minor_to_major.clone_from(&layout.minor_to_major);
            }
            shape.element_bits = layout.element_size_in_bits;
            shape.space = MemorySpace::from(layout.memory_space);
        }
        shape
    }

    /// Takes a shape apart into its arrays.
    pub(super) fn arrays(proto: &ShapeProto) -> Vec<Self> {
        if proto.element_type == ElementType::TUPLE.0 {
            proto.tuple_shapes.iter().flat_map(Shape::arrays).collect()
        } else {
            vec![Shape::from_proto(proto)]
        }
    }

    /// Writes the shape with its layout.
    pub fn to_proto(&self) -> ShapeProto {
        ShapeProto {
            layout: Some(LayoutProto {
                minor_to_major: self.minor_to_major.clone(),
                element_size_in_bits: self.element_bits,
                memory_space: self.space.number(),
                tail_padding_alignment_in_elements: 1,
            }),
            ..self.to_proto_without_layout()
        }
    }

    /// Writes the shape without a layout, which leaves the layout to the compiler.
    pub fn to_proto_without_layout(&self) -> ShapeProto {
        ShapeProto {
            element_type: self.element_type.0,
            dimensions: self.dims.clone(),
            ..ShapeProto::default()
        }
    }

    /// Returns the layout in XLA's text form, such as `{1,0}` or `{1,0:E(4)}` for packed types.
    ///
    /// The memory space is left out: PJRT tells it by the memory kind.
    pub fn layout_text(&self) -> String {
        let order: Vec<String> = self.minor_to_major.iter().map(i64::to_string).collect();
        let packing = match self.element_bits {
            0 => String::new(),
            bits => format!(":E({bits})"),
        };
        format!("{{{}{packing}}}", order.join(","))
    }

    /// Returns type and dimensions in XLA's text form, such as `f32[256,1024]`.
    pub fn text(&self) -> String {
        let dims: Vec<String> = self.dims.iter().map(i64::to_string).collect();
        format!("{}[{}]", self.element_type.name(), dims.join(","))
    }

    /// Returns the number of elements; the largest number there is for more than can be.
    pub fn elements(&self) -> u64 {
        let dims = self.dims.iter().map(|&dim| dim.max(0) as u64);
        // Without dimensions there is one, with an empty one there is none.
        let (mut product, mut empty) = (1u64, false);
        for dim in dims {
            empty |= dim == 0;
            product = product.saturating_mul(dim.max(1));
        }
        if empty { 0 } else { product }
    }

    /// Returns the bytes the array takes on the device, packing included.
    pub fn bytes(&self) -> u64 {
        let bits = if self.element_bits > 0 {
            self.element_bits as u64
        } else {
            8 * self.element_type.bytes()
        };
        self.elements().saturating_mul(bits).div_ceil(8)
    }

    /// Returns the bytes the array takes on the host, where every element is whole bytes.
    pub fn host_bytes(&self) -> u64 {
        self.elements().saturating_mul(self.element_type.bytes())
    }
}

/// Returns the dimensions of an array's shape in XLA's notation, such as `f32[16,1024]`, where one may have a bound
/// (`<=16`); `None` for a tuple, and what is no shape.
pub fn parse_dimensions(shape: &str) -> Option<Vec<u64>> {
    let (dtype, rest) = shape.split_once('[')?;
    let (dims, _) = rest.split_once(']')?;
    let is_array = !dtype.is_empty() && !dtype.contains('(');
    let dims = dims.split(',').filter(|dim| !dim.is_empty());
    let dims = dims.map(|dim| dim.trim_start_matches("<=").parse().ok());
    dims.collect::<Option<Vec<u64>>>().filter(|_| is_array)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numberings_are_one_to_one() {
        for (proto, pjrt, _, _) in TYPES {
            assert_eq!(ElementType(*proto).pjrt(), *pjrt);
            assert_eq!(ElementType::from_pjrt(*pjrt), Some(ElementType(*proto)));
        }
        for (proto, _, _, name) in TYPES {
            assert_eq!(ElementType::from_name(name), Some(ElementType(*proto)));
        }
    }

    #[test]
    fn a_shape_that_was_written_is_read_back() {
        for number in [11, 21] {
            let shape = Shape {
                minor_to_major: vec![0, 1],
                space: MemorySpace::Host,
                ..Shape::dense(ElementType(number), &[2, 3])
            };
            assert_eq!(Shape::from_proto(&shape.to_proto()), shape);
            assert_eq!(shape.to_proto_without_layout().layout, None);
        }
    }

    #[test]
    fn layouts_are_written_as_xla_does() {
        let text = |number, dims: &[i64]| Shape::dense(ElementType(number), dims).layout_text();
        assert_eq!(text(11, &[]), "{}");
        assert_eq!(text(11, &[2, 3]), "{1,0}");
        assert_eq!(text(21, &[2, 3]), "{1,0:E(4)}");
    }

    #[test]
    fn packed_types_take_less_on_the_device_than_on_the_host() {
        let shape = Shape::dense(ElementType(21), &[3, 5]); // s4
        assert_eq!((shape.bytes(), shape.host_bytes()), (8, 15));
        let shape = Shape::dense(ElementType(16), &[3, 5]); // bf16
        assert_eq!((shape.bytes(), shape.host_bytes()), (30, 30));
        assert_eq!(Shape::dense(ElementType::TOKEN, &[]).bytes(), 0);
    }
}
