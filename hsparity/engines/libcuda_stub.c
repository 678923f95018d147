/* Stands in for the CUDA driver on a machine that has none: every call answers CUDA_ERROR_NO_DEVICE (100).
   SGLang's kernel package links against libcuda.so.1 even when nothing runs on a GPU; with this it loads, asks, is told
   that there is no device, and goes on with the CPU. Never put it on the path of a machine that has a driver. */

enum { NO_DEVICE = 100 };

int cuInit(unsigned int flags)
{
    (void)flags;
    return NO_DEVICE;
}

int cuPointerGetAttribute(void *data, int attribute, unsigned long long pointer)
{
    (void)data;
    (void)attribute;
    (void)pointer;
    return NO_DEVICE;
}
