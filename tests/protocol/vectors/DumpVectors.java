import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.io.File;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.jar.JarFile;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;

/**
 * Encodes every message of Kafka, in every version, with Kafka's own generated classes, and prints
 * name, version, bytes in hex and Kafka's own JSON of the same object, a tab between them.
 * Per version: the defaults, all fields set, and a random mix with nulls and empty arrays.
 *
 *   javac -cp "$JARS/*" -d out DumpVectors.java && java -cp "out:$JARS/*" DumpVectors $JARS
 */
public final class DumpVectors {
    private static final int DEFAULTS = 0;
    private static final int FULL = 1;
    private static final int MIXED = 2;

    private final Random random;
    private final int variant;

    private DumpVectors(int variant, long seed) {
        this.variant = variant;
        this.random = new Random(seed);
    }

    public static void main(String[] args) throws Exception {
        for (Map.Entry<String, Class<?>> entry : messageClasses(new File(args[0])).entrySet()) {
            Class<?> type = entry.getValue();
            Schema[] schemas = (Schema[]) type.getField("SCHEMAS").get(null);
            short low = type.getField("LOWEST_SUPPORTED_VERSION").getShort(null);
            short high = type.getField("HIGHEST_SUPPORTED_VERSION").getShort(null);
            for (short version = low; version <= high; version++) {
                for (int variant = DEFAULTS; variant <= MIXED; variant++) {
                    dump(type, schemas[version], version, variant);
                }
            }
        }
    }

    private static void dump(Class<?> type, Schema schema, short version, int variant) throws Exception {
        Message message = (Message) type.getConstructor().newInstance();
        if (variant != DEFAULTS) {
            new DumpVectors(variant, type.getSimpleName().hashCode() * 31L + version).fill(message, schema);
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        String name = type.getSimpleName();
        try {
            ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(buffer), cache, version);
            Method toJson = Class.forName(type.getName() + "JsonConverter").getMethod("write", type, short.class);
            System.out.println(String.join("\t", name, Short.toString(version),
                HexFormat.of().formatHex(buffer.array()), toJson.invoke(null, message, version).toString()));
        } catch (RuntimeException error) {
            // Some messages have no encoding of their defaults, such as a name that is null by default and required.
            System.err.println(name + " v" + version + " variant " + variant + ": " + error);
        }
    }

    private static Map<String, Class<?>> messageClasses(File folder) throws Exception {
        Map<String, Class<?>> found = new TreeMap<>();
        File[] jars = folder.listFiles((parent, name) -> name.startsWith("kafka") && name.endsWith(".jar"));
        for (File jar : jars) {
            try (JarFile file = new JarFile(jar)) {
                for (String entry : file.stream().map(item -> item.getName()).toList()) {
                    if (entry.endsWith("JsonConverter.class") && !entry.contains("$")) {
                        String name = entry.substring(0, entry.length() - "JsonConverter.class".length());
                        Class<?> type = Class.forName(name.replace('/', '.'));
                        if (Message.class.isAssignableFrom(type)) {
                            found.put(type.getSimpleName(), type);
                        }
                    }
                }
            }
        }
        return found;
    }

    private void fill(Object target, Schema schema) throws Exception {
        for (BoundField bound : schema.fields()) {
            if (bound.def.type instanceof TaggedFields) {
                Field fields = TaggedFields.class.getDeclaredField("fields");
                fields.setAccessible(true);
                for (Object field : ((Map<?, ?>) fields.get(bound.def.type)).values()) {
                    org.apache.kafka.common.protocol.types.Field tagged =
                        (org.apache.kafka.common.protocol.types.Field) field;
                    set(target, tagged.name, tagged.type);
                }
            } else {
                set(target, bound.def.name, bound.def.type);
            }
        }
    }

    private void set(Object target, String name, Type type) throws Exception {
        Method setter = setter(target.getClass(), name);
        setter.setAccessible(true);
        if (type.isNullable() && variant == MIXED && random.nextInt(3) == 0) {
            setter.invoke(target, new Object[] {null});
        } else {
            setter.invoke(target, value(setter, type));
        }
    }

    private static Method setter(Class<?> type, String name) {
        String wanted = "set" + name.replace("_", "").toLowerCase();
        return Arrays.stream(type.getMethods())
            .filter(method -> method.getName().toLowerCase().equals(wanted) && method.getParameterCount() == 1)
            .findFirst().orElseThrow(() -> new IllegalStateException(type + " lacks " + wanted));
    }

    private Object value(Method setter, Type type) throws Exception {
        Class<?> parameter = setter.getParameterTypes()[0];
        if (type.arrayElementType().isPresent()) {
            return array(setter, type.arrayElementType().get());
        }
        if (type instanceof Schema) {
            Object nested = create(parameter);
            fill(nested, (Schema) type);
            return nested;
        }
        return scalar(parameter, type);
    }

    private Object array(Method setter, Type item) throws Exception {
        Class<?> parameter = setter.getParameterTypes()[0];
        boolean list = parameter == List.class;
        ParameterizedType generic = (ParameterizedType)
            (list ? setter.getGenericParameterTypes()[0] : parameter.getGenericSuperclass());
        Class<?> itemClass = (Class<?>) generic.getActualTypeArguments()[0];
        @SuppressWarnings("unchecked")
        Collection<Object> items = list ? new ArrayList<>() : (Collection<Object>) create(parameter);
        int count = variant == FULL ? 2 : random.nextInt(3);
        for (int i = 0; i < count; i++) {
            if (item instanceof Schema) {
                Object nested = create(itemClass);
                fill(nested, (Schema) item);
                items.add(nested);
            } else {
                items.add(scalar(itemClass, item));
            }
        }
        return items;
    }

    private static Object create(Class<?> type) throws Exception {
        Constructor<?> constructor = type.getDeclaredConstructor();
        constructor.setAccessible(true);
        return constructor.newInstance();
    }

    private Object scalar(Class<?> parameter, Type type) {
        if (parameter == boolean.class) {
            return random.nextBoolean();
        } else if (parameter == byte.class || parameter == Byte.class) {
            return (byte) random.nextInt();
        } else if (parameter == short.class || parameter == Short.class) {
            return (short) random.nextInt();
        } else if (type == Type.UINT16) {
            return random.nextInt(1 << 16);
        } else if (type == Type.UNSIGNED_INT32) {
            return random.nextInt() & 0xFFFFFFFFL;
        } else if (parameter == int.class || parameter == Integer.class) {
            return random.nextInt();
        } else if (parameter == long.class || parameter == Long.class) {
            return random.nextLong();
        } else if (parameter == double.class || parameter == Double.class) {
            return random.nextInt() / 16.0;
        } else if (parameter == String.class) {
            return random.nextInt(4) == 0 ? "kåfka-€" : "text-" + random.nextInt(1000);
        } else if (parameter == Uuid.class) {
            return new Uuid(random.nextLong(), random.nextLong());
        }
        byte[] bytes = new byte[random.nextInt(6) + 1];
        random.nextBytes(bytes);
        if (parameter == byte[].class) {
            return bytes;
        }
        return parameter == ByteBuffer.class ? ByteBuffer.wrap(bytes) : records(parameter, ByteBuffer.wrap(bytes));
    }

    /** MemoryRecords lies beside the interface that the setter takes, whose package differs between releases. */
    private static Object records(Class<?> parameter, ByteBuffer bytes) {
        try {
            Class<?> type = Class.forName(parameter.getPackageName() + ".MemoryRecords");
            return type.getMethod("readableRecords", ByteBuffer.class).invoke(null, bytes);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }
}
